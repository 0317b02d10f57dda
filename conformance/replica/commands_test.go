// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import "strings"

// commands are the commands of kubectl that people and scripts use and that only read. A
// line is a command. Words are separated by spaces, and quoted with ' if they contain
// some.
const commands = `
get nodes
get no -o wide
get nodes --show-labels
get ns
get namespaces -L team,tier
get pods -n shop
get pods -A
get po -n shop -o wide
get pods -A -o wide --no-headers
get pods -n shop -o name
get pods -n shop -o yaml
get pods -n shop -o json
get pod db-0 -n shop -o yaml --show-managed-fields
get pod db-0 -n shop -o json
get pod db-0 db-1 -n shop
get pod/db-0 svc/web -n shop
get pod/db-0 svc/web cm/settings -n shop -o yaml
get pods,svc,cm -n shop
get pods -n bare
get pods -n absent
get pods -A -l app=web
get pods -n shop -l 'app in (web,db),tier!=front'
get pods -A -l '!app'
get pods -n shop -l 'app=='
get pods -n shop -l '!!'
get pods -A --field-selector status.phase=Running
get pods -A --field-selector status.phase!=Running,spec.nodeName=
get pods -A --field-selector spec.nodeName=node-0
get pods -A --field-selector spec.nothing=x
get pods -n shop --sort-by .metadata.name
get pods -A --sort-by .status.startTime
get pods -n shop --sort-by .spec.nothing
get pods -n shop --show-kind --show-labels
get pods -A --chunk-size 2
get cm -n bulk --chunk-size 7
get cm -n bulk --chunk-size 0 -o name
get pods -n shop -o jsonpath='{.items[*].metadata.name}'
get pods -n shop -o jsonpath='{range .items[*]}{.metadata.name}{"\t"}{.status.podIP}{"\n"}{end}'
get pods -n shop -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName,NOTHING:.spec.nothing
get pods -n shop -o go-template='{{range .items}}{{.metadata.name}} {{end}}'
get pods -n shop --ignore-not-found absent
get pod absent -n shop
get pod absent db-0 -n shop
get pods -n shop absent -o json
get cm settings -n shop -o jsonpath='{.data.umlaut}'
get cm settings -n absent
get nothings
get nothings.example.com
get widgets -A
get wd -n shop
get wdg one -n shop -o wide
get widgets.example.com -A -o wide
get widgets.v1.example.com -n shop -o yaml
get widget one -n shop -o yaml
get widgets -A --field-selector spec.color=red
get widgets -A --field-selector spec.weight=1
get widgets -A -l app
get planets
get planet earth -o json
get planets -o wide --show-labels
get drafts -A
get toys -A
get all -n shop
get all -A
get all -n bare
get deploy,rs,sts,ds -n shop -o wide
get deployment web -n shop -o yaml
get deployment.apps/web -n shop
get deployments.v1.apps -A
get jobs,cj -A
get svc -A -o wide
get ep -n shop
get endpointslices -A
get ing -A
get ingressclass
get netpol -A -o wide
get cm -A
get secrets -A
get secret opaque -n shop -o yaml
get sa -A
get events -n shop --sort-by .metadata.name
get events -n shop --field-selector type=Warning
get events -n shop -o wide --field-selector involvedObject.name=settings
get events.events.k8s.io -n shop
get pv,pvc -n shop
get pv -o wide
get sc
get csidrivers,csinodes,volumeattachments,vac
get csistoragecapacities -A -o wide
get hpa -A
get pdb -A
get pc
get limits,quota -A
get podtemplates,rc -n shop -o wide
get controllerrevisions -A
get roles,rolebindings -n shop -o wide
get clusterroles
get clusterrolebindings -o wide
get crd
get crd widgets.example.com -o yaml
get apiservices
get csr -o wide
get clustertrustbundles
get leases -n shop
get flowschemas,prioritylevelconfigurations
get runtimeclass
get ip,servicecidrs
get deviceclasses,resourceslices,devicetaintrules
get resourceclaims,resourceclaimtemplates -n shop
get validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingadmissionpolicies,mutatingadmissionpolicybindings
get validatingwebhookconfigurations,mutatingwebhookconfigurations
get storageversionmigrations
get --raw /version
get --raw /api/v1/namespaces/shop/configmaps/settings
get --raw /apis/example.com/v1/planets/earth
get --raw /api/v1/namespaces/shop/configmaps/absent
get --raw /apis/nothing.example.com/v1
get --raw /readyz
get pods -n shop --server-print=false
get widgets -A --server-print=false
get pods -n shop -o wide --output-watch-events
get pod db-0 -n shop --subresource status
get deployment web -n shop --subresource scale
get deployment web -n shop --subresource scale -o yaml
get sts db -n shop --subresource status -o wide
get rc elder -n shop --subresource scale
get widget one -n shop --subresource scale
get widget one -n shop --subresource status -o yaml
get planet earth --subresource status
get pod db-0 -n shop --subresource resize
get pods -n shop --subresource status
get ns shop --subresource status
get --raw /apis/apps/v1/namespaces/shop/deployments/web/scale
logs db-0 -n shop
describe node node-0
describe ns shop
describe ns stage
describe pod db-0 -n shop
describe pods -n stage
describe pod lonely nowhere -n shop
describe deployment web -n shop
describe deploy -n stage
describe rs -n shop -l app=web
describe sts db -n shop
describe ds agent -n shop
describe job migrate -n shop
describe cj report -n shop
describe svc web -n shop
describe svc -A
describe ep by-hand -n shop
describe endpointslice by-hand-1 -n shop
describe ing web -n shop
describe ingressclass gate
describe netpol closed -n shop
describe cm settings -n shop
describe secret opaque -n shop
describe sa robot -n shop
describe pv disk-1
describe pvc data wanting -n shop
describe sc fast
describe csinode node-0
describe vac gold
describe hpa web -n shop
describe pdb web -n shop
describe pc dear
describe limits limits -n stage
describe quota quota -n stage
describe podtemplate template -n shop
describe rc elder -n shop
describe role reader -n shop
describe rolebinding reader -n shop
describe clusterrole view
describe clusterrolebinding example:sum
describe crd widgets.example.com
describe csr jane
describe lease leader -n shop
describe flowschema slow
describe prioritylevelconfiguration slow
describe runtimeclass sandbox
describe servicecidr more
describe ip 10.0.0.1
describe deviceclass gpu
describe resourceclaim one-gpu -n shop
describe widget one -n shop
describe widgets -n shop
describe planet earth
describe widget absent -n shop
describe nothing x
describe pod db -n shop
explain pods
explain pod.spec.containers
explain deployment --recursive
explain deployments.spec.template.spec.containers.resources --recursive
explain widget
explain widget.spec --recursive
explain widgets.spec.color
explain planet
explain pods --output plaintext-openapiv2
explain nothing
explain pods.spec.nothing
explain hpa --api-version autoscaling/v2
api-resources --verbs list,watch,get -o name
api-resources --verbs list,watch
api-resources --api-group apps --verbs list,watch -o name
api-resources --api-group example.com --verbs list,watch
api-resources --namespaced=false --verbs list,watch --no-headers
api-resources --categories all --verbs list,watch -o name
api-versions
version
version -o json
wait pod/db-0 -n shop --for condition=Ready --timeout 5s
wait pod --all -n bare --for condition=Ready --timeout 1s
wait pod/nowhere -n shop --for condition=Ready --timeout 1s
wait pod/db-0 -n shop --for jsonpath='{.status.phase}'=Running --timeout 5s
wait pod/absent -n shop --for delete --timeout 1s
wait deployment/web -n shop --for condition=Available --timeout 5s
wait job/migrate -n shop --for condition=Complete --timeout 5s
wait widget/one -n shop --for condition=Ready --timeout 5s
wait crd/widgets.example.com --for condition=Established --timeout 5s
wait pod -l app=web -n shop --for condition=Ready --timeout 5s
wait cm/new -n shop --for create --timeout 1s
rollout status deployment/web -n shop --timeout 5s
rollout status sts/db -n shop --timeout 5s
rollout status ds/agent -n shop --timeout 5s
rollout history deployment/web -n shop
rollout history sts/db -n shop
rollout status deployment/absent -n shop --timeout 1s
get pods -n shop -w --request-timeout 1s -o name
get deploy -A --show-labels -o wide
get cm settings -n shop -o yaml
`

// commandLines returns the commands as words.
func commandLines() [][]string {
	var out [][]string
	for line := range strings.Lines(strings.TrimSpace(commands)) {
		out = append(out, words(strings.TrimSpace(line)))
	}
	return out
}

// words splits a line at spaces that are not quoted.
func words(line string) []string {
	var out []string
	var word strings.Builder
	quoted := false
	for _, c := range line {
		switch {
		case c == '\'':
			quoted = !quoted
		case c == ' ' && !quoted:
			out = append(out, word.String())
			word.Reset()
		default:
			word.WriteRune(c)
		}
	}
	return append(out, word.String())
}
