// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Lists the pods of the namespace default with the current context of a kubeconfig, and
// watches them from there. Prints "nodes CODE BODY" if it may not list nodes, "listed
// NAMESPACE/NAME" for each pod, "watching" when the watch is open, and "TYPE NAMESPACE/NAME"
// for each event. Ends after a DELETED.

const { KubeConfig, CoreV1Api, Watch } = require('@kubernetes/client-node');

async function main() {
  const config = new KubeConfig();
  config.loadFromFile(process.argv[2]);
  const core = config.makeApiClient(CoreV1Api);
  await core.listNode().catch((err) => console.log(`nodes ${err.code} ${err.body}`));
  const pods = await core.listNamespacedPod({ namespace: 'default' });
  for (const pod of pods.items) {
    console.log(`listed ${pod.metadata.namespace}/${pod.metadata.name}`);
  }
  // A watch of the fleet needs the second one. A cluster ignores it.
  const query = { resourceVersion: pods.metadata.resourceVersion, watershedFleet: 'keyed-by-cluster' };
  const event = (type, pod) => {
    console.log(`${type} ${pod.metadata.namespace}/${pod.metadata.name}`);
    if (type === 'DELETED') {
      process.exit(0);
    }
  };
  const done = (err) => fail(err ?? new Error('the watch has ended'));
  await new Watch(config).watch('/api/v1/namespaces/default/pods', query, event, done);
  console.log('watching');
}

function fail(err) {
  console.error(err);
  process.exit(1);
}

main().catch(fail);
