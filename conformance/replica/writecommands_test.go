// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

// writeScripts are commands that write, with the reads that follow them. A script has a
// namespace of its own, and runs twice: at the API server and at the replica.
//
// A line is a command; see [parseStep] for the words before the program. {ns} is the
// namespace, which is also the name of objects that have none, {dir} the folder with the
// files of testdata/writes, {server}, {token} and {ca} the access of the user.
var writeScripts = map[string]string{
	"create": `
kubectl create configmap settings --from-literal=color=blue --from-literal=size=4
kubectl get cm settings -o yaml
! kubectl create configmap settings --from-literal=color=red
kubectl create secret generic pass --from-literal=word=secret
kubectl get secret pass -o yaml
kubectl create secret docker-registry pull --docker-server=registry.example --docker-username=u --docker-password=p
kubectl get secret pull -o jsonpath={.type}
kubectl create serviceaccount robot
kubectl get sa robot -o yaml
kubectl create token robot
kubectl create token robot --duration=20m --audience=me -o jsonpath={.kind}/{.spec.audiences}/{.spec.expirationSeconds}
! kubectl create token nobody
kubectl create role reader --verb=get,list --resource=pods,deployments.apps
kubectl create rolebinding reader --role=reader --serviceaccount={ns}:robot
kubectl get role,rolebinding -o yaml
kubectl create clusterrole {ns} --verb=get --non-resource-url=/logs
kubectl create clusterrolebinding {ns} --clusterrole={ns} --user=jane
kubectl get clusterrole/{ns} clusterrolebinding/{ns} -o yaml
kubectl create service clusterip front --tcp=80:8080
kubectl get svc front -o jsonpath={.spec.ports}
kubectl create ingress web --rule=example.com/*=front:80
kubectl get ing web -o yaml
kubectl create quota small --hard=pods=50
kubectl get quota small -o jsonpath={.spec}
kubectl create poddisruptionbudget web --selector=app=web --min-available=1
kubectl get pdb web -o jsonpath={.spec}
kubectl create priorityclass {ns} --value=10 --description=low
kubectl get pc {ns}
kubectl create cronjob report --image=image --schedule='0 0 1 1 *'
kubectl get cj report -o jsonpath={.spec.schedule}
kubectl create job now --from=cronjob/report
kubectl get job now -o jsonpath={.metadata.ownerReferences[0].name}
kubectl create job once --image=image -- sh -c true
kubectl wait job/once --for=condition=Complete --timeout=60s
kubectl create -f {dir}/other.yaml -o yaml
kubectl get -f {dir}/other.yaml
kubectl create configmap dry --from-literal=a=b --dry-run=client -o yaml
kubectl create configmap dry --from-literal=a=b --dry-run=server -o yaml
! kubectl get cm dry
kubectl run lone --image=image --labels=app=lone
kubectl get pod lone -o jsonpath={.spec.containers[0].image}
kubectl expose pod lone --port=80
kubectl get svc lone -o jsonpath={.spec.selector}
kubectl wait pod/lone --for=condition=Ready --timeout=60s
kubectl wait pod/lone --for=jsonpath={.status.phase}=Running
! kubectl create -f {dir}/invalid.yaml
! kubectl create -f {dir}/unknown.yaml
kubectl create -f {dir}/unknown.yaml --validate=warn
! kubectl create deployment UPPER --image=image
! kubectl create configmap other-2 -n absent
kubectl create --raw /api/v1/namespaces/{ns}/configmaps -f {dir}/posted.json
kubectl get cm posted -o jsonpath={.data}
kubectl delete --raw /api/v1/namespaces/{ns}/configmaps/posted
! kubectl get cm posted
`,
	"apply": `
kubectl apply -f {dir}/settings.yaml
kubectl get cm settings -o yaml
kubectl apply -f {dir}/settings.yaml
! kubectl diff -f {dir}/settings-2.yaml
! kubectl diff --server-side -f {dir}/other.yaml
kubectl apply -f {dir}/settings-2.yaml --dry-run=client -o yaml
kubectl apply -f {dir}/settings-2.yaml --dry-run=server -o yaml
kubectl get cm settings -o jsonpath={.data}
kubectl apply -f {dir}/settings-2.yaml
kubectl get cm settings -o yaml --show-managed-fields
kubectl diff -f {dir}/settings-2.yaml
kubectl apply view-last-applied cm/settings
kubectl apply set-last-applied -f {dir}/settings.yaml
kubectl get cm settings -o yaml
kubectl apply edit-last-applied cm/settings
kubectl apply --server-side -f {dir}/other.yaml --dry-run=server -o yaml
! kubectl get cm other
kubectl apply --server-side -f {dir}/other.yaml
kubectl get cm other -o yaml --show-managed-fields
! kubectl apply --server-side --field-manager=rival -f {dir}/other-2.yaml
kubectl apply --server-side --field-manager=rival --force-conflicts -f {dir}/other-2.yaml
kubectl get cm other -o yaml --show-managed-fields
kubectl diff --server-side --field-manager=rival -f {dir}/other-2.yaml
kubectl apply --prune -l part=set --prune-allowlist=core/v1/ConfigMap -f {dir}/set.yaml
kubectl get cm -l part=set -o name
kubectl apply --prune -l part=set --prune-allowlist=core/v1/ConfigMap -f {dir}/set-2.yaml
kubectl get cm -l part=set -o yaml
kubectl apply -k {dir}/layer
kubectl get cm -l layer=top
kubectl get -k {dir}/layer -o yaml
kubectl delete -k {dir}/layer
kubectl get cm -l layer=top
! kubectl apply -f {dir}/invalid.yaml
! kubectl apply -f {dir}/unknown.yaml
`,
	"change": `
kubectl create -f {dir}/settings.yaml
kubectl edit cm settings
kubectl get cm settings -o yaml
kubectl edit cm settings
kubectl patch cm settings -p '{"data":{"a":"1"}}'
kubectl get cm settings -o jsonpath={.data}
kubectl patch cm settings --type=merge -p '{"data":{"size":null,"a":"2"}}'
kubectl get cm settings -o jsonpath={.data}
kubectl patch cm settings --type=json -p '[{"op":"replace","path":"/data/a","value":"3"}]'
kubectl get cm settings -o jsonpath={.data}
kubectl patch cm settings --type=json -p '[{"op":"replace","path":"/data/a","value":"3"}]'
! kubectl patch cm settings --type=json -p '[{"op":"test","path":"/data/a","value":"x"}]'
! kubectl patch cm settings --type=merge -p '{"metadata":{"resourceVersion":"1"}}'
! kubectl patch cm absent -p '{"data":{"a":"1"}}'
kubectl patch cm settings -p '{"data":{"a":"4"}}' --dry-run=server -o jsonpath={.data}
kubectl get cm settings -o jsonpath={.data}
kubectl patch -f {dir}/settings.yaml --local -p '{"data":{"a":"4"}}' -o yaml
kubectl create deployment web --image=image --replicas=0
kubectl patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side"}]}}}}'
kubectl get deploy web -o jsonpath={.spec.template.spec.containers[*].name}
kubectl patch deployment web --subresource=scale --type=merge -p '{"spec":{"replicas":2}}'
kubectl get deploy web -o jsonpath={.spec.replicas}
kubectl get deploy web --subresource=scale -o jsonpath={.spec}
kubectl patch deployment web --subresource=status --type=merge -p '{"status":{"conditions":[{"type":"Odd","status":"True"}]}}'
kubectl replace -f {dir}/settings-2.yaml
kubectl get cm settings -o yaml
kubectl replace --force -f {dir}/settings.yaml
kubectl get cm settings -o yaml
! kubectl replace -f {dir}/other.yaml
kubectl label cm settings tier=front
kubectl get cm -l tier=front -o name
kubectl label cm settings tier=back --overwrite
kubectl get cm -l tier=front -o name
kubectl get cm -L tier -l tier
! kubectl label cm settings tier=other
kubectl label cm settings tier-
kubectl get cm -l tier -o name
kubectl annotate cm settings note='some words'
kubectl get cm settings -o jsonpath={.metadata.annotations}
kubectl annotate cm settings note-
kubectl get cm settings -o yaml
kubectl label ns {ns} team=x
kubectl get ns -l team=x,kubernetes.io/metadata.name={ns} --no-headers
`,
	"rollout": `
kubectl create deployment web --image=image:1 --replicas=3
kubectl get deploy web -o jsonpath={.spec.replicas}
last kubectl rollout status deployment/web --timeout=60s
kubectl wait deployment/web --for=condition=Available --timeout=60s
later kubectl get pods -l app=web
kubectl scale deployment web --replicas=2
kubectl get deploy web -o jsonpath={.spec.replicas}
! kubectl scale deployment web --current-replicas=9 --replicas=1
later kubectl get pods -l app=web -o name
kubectl set image deployment/web image=image:2
kubectl get deploy web -o jsonpath={.spec.template.spec.containers[0].image}
last kubectl rollout status deployment/web --timeout=60s
kubectl annotate deployment web kubernetes.io/change-cause=reasons
later kubectl rollout history deployment/web
kubectl set env deployment/web COLOR=blue
kubectl set env deployment/web --list
kubectl set resources deployment web --requests=cpu=10m
kubectl get deploy web -o jsonpath={.spec.template.spec.containers[0].resources}
kubectl rollout pause deployment/web
kubectl get deploy web -o jsonpath={.spec.paused}
! kubectl rollout pause deployment/web
kubectl rollout resume deployment/web
last kubectl rollout status deployment/web --timeout=60s
kubectl rollout restart deployment/web
kubectl get deploy web -o jsonpath={.spec.template.metadata.annotations}
last kubectl rollout status deployment/web --timeout=60s
later kubectl rollout history deployment/web --revision=1
kubectl rollout undo deployment/web --to-revision=1
kubectl get deploy web -o jsonpath={.spec.template.spec.containers[0].image}
last kubectl rollout status deployment/web --timeout=60s
! kubectl rollout undo deployment/web --to-revision=99
kubectl autoscale deployment web --min=1 --max=4 --cpu-percent=50
kubectl get hpa web -o jsonpath={.spec}
kubectl delete hpa web
kubectl get hpa
later kubectl describe deployment web
kubectl delete deployment web --cascade=orphan
kubectl get deploy
later kubectl get rs -o name
kubectl delete rs --all
later kubectl get pods -l app=web
kubectl create deployment web --image=image:1
last kubectl rollout status deployment/web --timeout=60s
kubectl delete deployment web --cascade=foreground
kubectl get deploy
`,
	"sets": `
kubectl create -f {dir}/stateful.yaml
last kubectl rollout status sts/db --timeout=60s
last kubectl rollout status ds/agent --timeout=60s
kubectl scale sts db --replicas=3
kubectl get sts db -o jsonpath={.spec.replicas}
last kubectl rollout status sts/db --timeout=60s
later kubectl get pods -l app=db
kubectl set image sts/db main=image:2
later kubectl rollout history sts/db
kubectl rollout undo sts/db
kubectl get sts db -o jsonpath={.spec.template.spec.containers[0].image}
kubectl rollout restart ds/agent
last kubectl rollout status ds/agent --timeout=60s
later kubectl rollout history ds/agent
kubectl delete sts,ds --all
kubectl get sts,ds
`,
	"delete": `
kubectl create -f {dir}/set.yaml
kubectl delete cm set-1
! kubectl get cm set-1
! kubectl delete cm set-1
kubectl delete cm set-1 --ignore-not-found
kubectl get cm set-1 --ignore-not-found
kubectl create cm set-1
kubectl get cm set-1 -o yaml
kubectl label cm set-1 part=set
kubectl delete cm -l part=set --dry-run=server
kubectl get cm -l part=set -o name
kubectl delete cm -l part=set
kubectl get cm -l part=set
kubectl create -f {dir}/held.yaml
kubectl delete cm held --wait=false
kubectl get cm held -o jsonpath={.metadata.finalizers}
! kubectl wait cm/held --for=delete --timeout=1s
! kubectl delete cm held --timeout=1s
kubectl patch cm held --type=json -p '[{"op":"remove","path":"/metadata/finalizers"}]'
! kubectl get cm held
kubectl wait cm/held --for=delete --timeout=5s
kubectl create -f {dir}/pods.yaml
kubectl wait pod --for=condition=Ready -l set=pods --timeout=60s
kubectl delete pod pod-1 --grace-period=0 --force
! kubectl get pod pod-1
kubectl delete pod pod-2
! kubectl get pod pod-2
kubectl delete pod pod-3 --now --wait=false
quiet kubectl wait pod/pod-3 --for=delete --timeout=60s
kubectl get pods
kubectl create service clusterip front --tcp=80:8080
kubectl delete svc front
kubectl get svc
kubectl create ns {ns}-2
kubectl get ns {ns}-2 -o jsonpath={.metadata.name}
kubectl create cm inside -n {ns}-2
kubectl get cm inside -n {ns}-2 -o name
kubectl delete ns {ns}-2 --timeout=60s
! kubectl get ns {ns}-2
! kubectl create cm inside -n {ns}-2
`,
	"nodes": `
kubectl create -f {dir}/node.yaml
kubectl get node {ns} -o jsonpath={.metadata.labels}
kubectl wait node/{ns} --for=condition=Ready --timeout=60s
kubectl create -f {dir}/pinned.yaml
last kubectl rollout status deployment/pinned --timeout=60s
kubectl cordon {ns}
kubectl get node {ns} -o jsonpath={.spec.unschedulable}
kubectl cordon {ns}
kubectl uncordon {ns}
kubectl get node {ns} -o jsonpath={.spec.unschedulable}
kubectl taint node {ns} key=value:NoSchedule
kubectl get node {ns} -o jsonpath='{.spec.taints[?(@.key=="key")]}'
! kubectl taint node {ns} key=value:NoSchedule
kubectl taint node {ns} key-
kubectl get node {ns} -o jsonpath='{.spec.taints[?(@.key=="key")]}'
kubectl label node {ns} node-role.kubernetes.io/test=
kubectl get node -l kubernetes.io/hostname={ns}
sorted kubectl drain {ns} --dry-run=server
sorted kubectl drain {ns} --timeout=60s
kubectl get node {ns}
later kubectl get pods
kubectl delete -f {dir}/pinned.yaml
kubectl delete node {ns}
! kubectl get node {ns}
`,
	"custom": `
kubectl create -f {dir}/definition.yaml
kubectl get crd widgets.{ns}.example.com -o jsonpath={.spec.scope}
kubectl wait crd/widgets.{ns}.example.com --for=condition=Established --timeout=30s
until kubectl create -f {dir}/widget.yaml
kubectl get widgets.{ns}.example.com one -o yaml
kubectl get widgets.{ns}.example.com
! kubectl apply -f {dir}/widget-2.yaml
kubectl patch widgets.{ns}.example.com one --type=merge -p '{"spec":{"color":"blue"}}'
kubectl get widgets.{ns}.example.com one -o jsonpath={.spec}
kubectl scale widgets.{ns}.example.com/one --replicas=3
kubectl get widgets.{ns}.example.com one -o jsonpath={.spec}
kubectl patch widgets.{ns}.example.com one --subresource=status --type=merge -p '{"status":{"replicas":2}}'
kubectl get widgets.{ns}.example.com one -o jsonpath={.status}
kubectl get widgets.{ns}.example.com one --subresource=scale -o yaml
later kubectl explain widgets.{ns}.example.com.spec
kubectl edit widgets.{ns}.example.com one
kubectl label widgets.{ns}.example.com one a=b
kubectl get widgets.{ns}.example.com -l a=b
kubectl delete widgets.{ns}.example.com one
! kubectl get widgets.{ns}.example.com one
kubectl apply -f {dir}/widget.yaml
kubectl get widgets.{ns}.example.com one -o yaml
kubectl apply --server-side -f {dir}/widget.yaml
kubectl delete crd widgets.{ns}.example.com --timeout=60s
! kubectl get crd widgets.{ns}.example.com
later ! kubectl get widgets.{ns}.example.com
`,
	"access": `
kubectl auth reconcile -f {dir}/roles.yaml
kubectl get role editor -o yaml
kubectl auth reconcile -f {dir}/roles.yaml
kubectl auth whoami
kubectl auth whoami -o yaml
kubectl auth can-i create pods
kubectl auth can-i '*' '*'
kubectl auth can-i get /metrics
sorted kubectl auth can-i --list
later kubectl auth can-i create configmaps --context editor
later kubectl auth can-i get deployments/web --context editor
! kubectl auth can-i get deployments/other --context editor
! kubectl auth can-i delete configmaps --context editor
! kubectl auth can-i create configmaps -n default --context editor
sorted kubectl auth can-i --list --context editor
kubectl auth whoami --context editor
until kubectl create cm mine --context editor
kubectl get cm mine -o yaml --context editor
kubectl patch cm mine -p '{"data":{"a":"b"}}' --context editor
kubectl get cm mine -o jsonpath={.data} --context editor
! kubectl delete cm mine --context editor
! kubectl get secrets --context editor
! kubectl create ns {ns}-3 --context editor
! kubectl create cm mine -n default --context editor
! kubectl apply -f {dir}/invalid.yaml --context editor
kubectl create cm acting --as=editor
kubectl get cm acting -o jsonpath={.metadata.name} --as=editor
! kubectl delete cm acting --as=editor
! kubectl create cm acting --as=writer --context editor
! kubectl get cm --context stranger
! kubectl create cm strange --context stranger
kubectl create -f {dir}/request.yaml
kubectl get csr {ns} -o jsonpath={.spec.username}/{.status}
kubectl certificate approve {ns}
kubectl get csr {ns} -o jsonpath={.status.conditions[*].type}
kubectl get csr {ns}
kubectl certificate deny {ns}-2
kubectl get csr {ns}-2
kubectl delete csr {ns} {ns}-2
! kubectl get csr {ns}
`,
	"curl": `
curl -sS {curl} {server}/api/v1/namespaces/{ns}/configmaps -H 'Content-Type: application/json' -d @{dir}/posted.json
curl -sS {curl} {server}/api/v1/namespaces/{ns}/configmaps/posted
curl -sS {curl} {server}/api/v1/namespaces/{ns}/configmaps -H 'Content-Type: application/json' -d @{dir}/posted.json
curl -sS {curl} -X PATCH {server}/api/v1/namespaces/{ns}/configmaps/posted -H 'Content-Type: application/strategic-merge-patch+json' -d '{"metadata":{"labels":{"x":"y"}},"data":{"c":"d"}}'
curl -sS {curl} {server}/api/v1/namespaces/{ns}/configmaps?labelSelector=x%3Dy
curl -sS {curl} -X PATCH {server}/api/v1/namespaces/{ns}/configmaps/posted -H 'Content-Type: application/apply-patch+yaml' -d '{}'
curl -sS {curl} -X PATCH {server}/api/v1/namespaces/{ns}/configmaps/posted?fieldManager=curl -H 'Content-Type: application/apply-patch+yaml' -d '{"apiVersion":"v1","kind":"ConfigMap","data":{"e":"f"}}'
curl -sS {curl} -X PATCH {server}/api/v1/namespaces/{ns}/configmaps/posted -H 'Content-Type: text/plain' -d 'x'
curl -sS {curl} -X PUT {server}/api/v1/namespaces/{ns}/configmaps/posted?dryRun=All -H 'Content-Type: application/json' -d @{dir}/posted.json
curl -sS {curl} {server}/api/v1/namespaces/{ns}/configmaps/posted
curl -sS {curl} -X DELETE {server}/api/v1/namespaces/{ns}/configmaps/posted
curl -sS {curl} {server}/api/v1/namespaces/{ns}/configmaps/posted
curl -sS {curl} -X DELETE {server}/api/v1/namespaces/{ns}/configmaps/posted
curl -sS {curl} -X POST {server}/api/v1/namespaces/{ns}/nothings -d '{}'
curl -sS {curl} -X POST {server}/api/v1/namespaces/{ns}/configmaps -H 'Content-Type: application/json' -d 'not JSON'
curl -sS {curl} -X DELETE {server}/api/v1/namespaces/{ns}/configmaps?labelSelector=absent
curl -sS {curl} -X OPTIONS {server}/api/v1/namespaces/{ns}/configmaps
curl -sS {curl} --head {server}/api/v1/namespaces/{ns}/configmaps --output /dev/null
`,
}

// wideScript is about the whole cluster, and runs when no other script does.
const wideScript = `
kubectl cluster-info
kubectl version
later kubectl api-versions
later kubectl api-resources
later kubectl api-resources -o wide --sort-by=name
kubectl explain pods
kubectl explain deployment.spec.strategy --recursive
kubectl explain hpa --api-version=autoscaling/v1
kubectl explain pods --output=plaintext-openapiv2
! kubectl explain nothing
kubectl get --raw /version
kubectl get --raw /api
later kubectl get --raw /apis
kubectl get --raw /apis/apps
kubectl get --raw /apis/apps/v1
kubectl get --raw /apis/metrics.k8s.io/v1beta1
kubectl get --raw /apis/metrics.k8s.io/v1beta1/nodes
kubectl get --raw /readyz
kubectl get --raw /livez
kubectl get --raw /.well-known/openid-configuration
! kubectl get --raw /nothing
! kubectl get --raw /apis/nothing.example.com
! kubectl get --raw /api/v1/namespaces/{ns}/configmaps/absent
kubectl get --raw /apis/autoscaling/v1/namespaces/{ns}/horizontalpodautoscalers
kubectl top nodes
kubectl top node node-0
kubectl top pods
kubectl top pods --containers
kubectl top pod one -n {ns}
! kubectl top pod absent
kubectl top pods -l app=absent
kubectl create -f {dir}/event.yaml
kubectl events
kubectl events --types=Warning -o name
kubectl get events
kubectl get events.events.k8s.io
kubectl create cm settings
kubectl events --for=cm/settings
kubectl delete events --all
kubectl events
kubectl get hpa.v1.autoscaling
kubectl create deployment web --image=image --replicas=0
kubectl get deployments.v1.apps web -o jsonpath={.spec.replicas}
last kubectl rollout status deployment/web --timeout=60s
kubectl delete deployments,services,statefulsets --all
later kubectl get all
`

// helmScript are the commands of helm.
const helmScript = `
helm install release {dir}/chart --wait --timeout 60s
helm status release
helm list
kubectl get cm release-colors -o jsonpath={.data}
! helm install release {dir}/chart
helm get manifest release
! helm upgrade absent {dir}/chart
helm upgrade release {dir}/chart --set color=red,replicas=2 --wait --timeout 60s
kubectl get cm release-colors release-extra release-hook -o jsonpath={.items[*].data}
kubectl get deploy release -o jsonpath={.spec.replicas}
helm get values release
helm history release
helm upgrade release {dir}/chart --set color=green --dry-run=server
helm history release
helm rollback release 1 --wait --timeout 60s
kubectl get cm release-colors -o jsonpath={.data}
! kubectl get cm release-extra
helm history release -o json
helm upgrade --install second {dir}/chart --set color=green
helm list -o json
helm get all second
helm uninstall second
helm uninstall release --wait --timeout 60s
helm list
kubectl get deploy,cm -l app.kubernetes.io/managed-by=Helm
! helm status release
`
