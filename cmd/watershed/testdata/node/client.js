// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Lists the pods of the current context of a kubeconfig and watches them from there.
// Prints "listed NAMESPACE/NAME" for each pod, "watching" when the watch is open, and
// "TYPE NAMESPACE/NAME" for each event. Ends after a DELETED.

const { KubeConfig, CoreV1Api, Watch } = require('@kubernetes/client-node');

async function main() {
  const config = new KubeConfig();
  config.loadFromFile(process.argv[2]);
  const pods = await config.makeApiClient(CoreV1Api).listPodForAllNamespaces();
  for (const pod of pods.items) {
    console.log(`listed ${pod.metadata.namespace}/${pod.metadata.name}`);
  }
  const query = { resourceVersion: pods.metadata.resourceVersion };
  const event = (type, pod) => {
    console.log(`${type} ${pod.metadata.namespace}/${pod.metadata.name}`);
    if (type === 'DELETED') {
      process.exit(0);
    }
  };
  const done = (err) => fail(err ?? new Error('the watch has ended'));
  await new Watch(config).watch('/api/v1/pods', query, event, done);
  console.log('watching');
}

function fail(err) {
  console.error(err);
  process.exit(1);
}

main().catch(fail);
