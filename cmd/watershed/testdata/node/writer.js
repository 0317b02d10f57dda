// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Runs an informer of the config maps of the namespace default that have the label
// writer=node, with the current context of a kubeconfig. Creates, replaces, patches, reads and
// deletes such config maps, ROUNDS times. Each read comes directly after a write and must
// show it. Prints a line for each result. When the informer has reported everything that it
// must report, prints the events of each object in order, and ends.

const { KubeConfig, CoreV1Api, makeInformer, PatchStrategy, setHeaderOptions } = require('@kubernetes/client-node');

const namespace = 'default';
const rounds = Number(process.argv[3]);
const labels = { writer: 'node' };
const events = new Map();

function record(type) {
  return (map) => {
    const name = map.metadata.name;
    const value = map.data?.value ?? '';
    events.set(name, [...(events.get(name) ?? []), `${type} ${value}`]);
  };
}

function check(what, got, want) {
  if (got !== want) {
    throw new Error(`${what}: ${got}, want ${want}`);
  }
}

async function value(core, name) {
  return (await core.readNamespacedConfigMap({ name, namespace })).data.value;
}

async function round(core, i) {
  const name = `node-${i}`;
  const body = { metadata: { name, labels }, data: { value: 'created' } };
  await core.createNamespacedConfigMap({ namespace, body });
  const created = await core.readNamespacedConfigMap({ name, namespace });
  check('created', created.data.value, 'created');
  created.data.value = 'replaced';
  await core.replaceNamespacedConfigMap({ name, namespace, body: created });
  check('replaced', await value(core, name), 'replaced');
  const patch = { data: { value: 'patched' } };
  await core.patchNamespacedConfigMap({ name, namespace, body: patch }, setHeaderOptions('Content-Type', PatchStrategy.MergePatch));
  const list = await core.listNamespacedConfigMap({ namespace, labelSelector: 'writer=node' });
  check('patched', list.items.find((m) => m.metadata.name === name)?.data.value, 'patched');
  await core.deleteNamespacedConfigMap({ name, namespace });
  const gone = await core.readNamespacedConfigMap({ name, namespace }).then(() => 200, (err) => err.code);
  check('deleted', gone, 404);
  console.log(`${name} created, replaced, patched, deleted`);
}

async function main() {
  const config = new KubeConfig();
  config.loadFromFile(process.argv[2]);
  const core = config.makeApiClient(CoreV1Api);
  const list = () => core.listNamespacedConfigMap({ namespace, labelSelector: 'writer=node' });
  const informer = makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, list, 'writer=node');
  informer.on('add', record('add'));
  informer.on('update', record('update'));
  informer.on('delete', record('delete'));
  informer.on('error', fail);
  await informer.start();
  for (let i = 0; i < rounds; i++) {
    await round(core, i);
  }
  const complete = () => [...Array(rounds).keys()].every((i) => events.get(`node-${i}`)?.length >= 4);
  for (let i = 0; i < 100 && !complete(); i++) {
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  for (let i = 0; i < rounds; i++) {
    console.log(`node-${i}: ${(events.get(`node-${i}`) ?? []).join(', ')}`);
  }
  process.exit(0);
}

function fail(err) {
  console.error(err);
  process.exit(1);
}

main().catch(fail);
