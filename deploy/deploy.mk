# SPDX-License-Identifier: Apache-2.0
# Copyright The Watershed Authors
#
# The chart, the kustomize base, images and archives. The tools are built at these versions into
# CACHE.

KUBECONFORM_VERSION := v0.8.0
KO_VERSION := v0.19.1
CRANE_VERSION := v0.22.1
GORELEASER_VERSION := v2.16.0

KUBECONFORM := $(CACHE)/kubeconform/$(KUBECONFORM_VERSION)/kubeconform
KO := $(CACHE)/ko/$(KO_VERSION)/ko
CRANE := $(CACHE)/crane/$(CRANE_VERSION)/crane
GORELEASER := $(CACHE)/goreleaser/$(GORELEASER_VERSION)/goreleaser

.PHONY: chart
chart: ## lint and render the chart and the kustomize base, compare their rights with watershed rbac; builds helm (minutes, once per machine), needs make kube
	go run ./internal/kubetest/kubebuild -helm
	WATERSHED_DEPLOY=short go test -count=1 -run '^Test(Chart|Kustomize)' ./cmd/watershed

.PHONY: chart-files
chart-files: ## write the generated files: the table of values, the kustomize base, copies of dashboards and alerts
	go run ./internal/kubetest/kubebuild -helm
	WATERSHED_DEPLOY=write go test -count=1 -run '^Test(Chart|Kustomize)' ./cmd/watershed

.PHONY: deploy
deploy: $(KUBECONFORM) ## install, upgrade and uninstall the chart on a real API server, and run its container as a process; needs make kube
	go run ./internal/kubetest/kubebuild -helm
	WATERSHED_DEPLOY=full WATERSHED_KUBE=required WATERSHED_KUBECONFORM=$(KUBECONFORM) go test -timeout 15m -count=1 -v -run '^Test(Chart|Kustomize|Deploy)' ./cmd/watershed

export CA_BUNDLE

.PHONY: image
image: $(KO) $(CRANE) ## build the OCI image and its SBOM into dist/oci, without a registry; CHECK=1 builds it twice and compares, CA_BUNDLE=file adds certificate authorities
	@KO=$(KO) CRANE=$(CRANE) deploy/image/build dist/oci
	$(if $(CHECK),@KO=$(KO) CRANE=$(CRANE) deploy/image/build dist/again && \
		cmp dist/oci/image/index.json dist/again/image/index.json && rm -r dist/again && echo "both builds have the same digest")

.PHONY: release
release: $(GORELEASER) ## a dry run of a release: archives for all platforms, checksums and SBOMs in dist/release; publishes nothing
	$(GORELEASER) check
	$(GORELEASER) release --snapshot --clean

.PHONY: rehearsal
rehearsal: $(KO) $(CRANE) $(GORELEASER) ## a release on this machine, from a clone, by the written steps: modules, archives, image, chart, then the start pages with them; QUICK=1 for this platform only; needs make kube
	go run ./internal/kubetest/kubebuild -helm
	QUICK=$(QUICK) deploy/release/rehearse

$(KUBECONFORM):
	@$(call build-tool,kubeconform,$(KUBECONFORM_VERSION),github.com/yannh/kubeconform/cmd/kubeconform)
$(KO):
	@$(call build-tool,ko,$(KO_VERSION),github.com/google/ko)
$(CRANE):
	@$(call build-tool,crane,$(CRANE_VERSION),github.com/google/go-containerregistry/cmd/crane)
$(GORELEASER):
	@$(call build-tool,goreleaser,$(GORELEASER_VERSION),github.com/goreleaser/goreleaser/v2)

# build-tool builds a program outside of the workspace: name, version, package.
build-tool = echo "building $(1) $(2) into $(CACHE)"; GOWORK=off GOBIN=$(CACHE)/$(1)/$(2) go install $(3)@$(2)
