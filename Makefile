# The ways in: `make run` shows what nodeadm does, `make test` proves it.

# The length of the hash is said, since git would take it from the number of
# objects in this clone.
VERSION ?= $(shell git describe --tags --match 'v[0-9]*' --always --abbrev=12 --dirty 2>/dev/null || echo 0.0.0-dev)
COMMIT  := $(shell git rev-parse --verify -q HEAD || echo unknown)
# The date of the commit, not of the build: two builds of one commit are equal.
DATE    := $(shell git log -1 --format=%cI 2>/dev/null || echo unknown)

LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)
# urfave_cli_no_docs leaves out the man-page generator and its markdown parser,
# nethttpomithttp2 HTTP/2, which nothing here needs (0.6 MB).
TAGS := urfave_cli_no_docs,nethttpomithttp2
# Nearly everything is compiled without inlining: 1.1 MB less, and no
# difference in time that could be measured.
SMALL := $(foreach path,github.com mvdan.cc go.yaml.in sigs.k8s.io net encoding text archive regexp compress mime,-gcflags='$(path)/...=-l') $(foreach package,net crypto/tls crypto/x509 regexp math/big mime fmt time,-gcflags=$(package)=-l)
GOBUILD := CGO_ENABLED=0 go build -trimpath -tags $(TAGS) $(SMALL) -buildvcs=false -ldflags "$(LDFLAGS)"
BIN     := bin/nodeadm

# What a release is made for, and where it goes.
ARCHS := amd64 arm64
DIST  := dist
# abspath takes a path with spaces for several.
INTO  := $(if $(filter /%,$(firstword $(DIST))),$(DIST),$(CURDIR)/$(DIST))

# Modules besides the agent's own; each keeps its dependencies to itself.
MODULES := data/refresh packer/package test/machine/standin test/celdiff test/authenticator

.PHONY: build run test test-go test-faults test-machine test-cluster test-packer lint release release-check generate fuzz clean

build: ## the static binary, bin/nodeadm
	$(GOBUILD) -o $(BIN) ./cmd/nodeadm

run: build ## a bootstrap on this machine, against a simulated instance
	bin/nodeadm simulate

test: lint test-go test-faults test-machine test-cluster test-packer release-check ## everything; as root the machines too

test-go: build ## all tests that need no machine
	test/machine/prepare.sh
	go test -tags $(TAGS) $$(go list ./... | grep -v '/test/\(machine\|faults\|cluster\|release\|packer\)$$')
	for module in $(MODULES); do (cd $$module && go test ./...) || exit 1; done

test-faults: build ## a kill and a disk error at every change of the disk
	@go test -timeout 20m -v ./test/faults >bin/faults.log 2>&1 || { grep -v '^ *--- PASS\|^=== ' bin/faults.log; exit 1; }
	@grep '^nodeadm was killed\|^ok' bin/faults.log

test-machine: build ## tests on a booted systemd; needs root and Debian's tools
	test/machine/prepare.sh
	go test -tags $(TAGS) -timeout 25m -v ./test/machine/... ./test/release

test-cluster: build ## nodes that join a control plane; needs what test-machine needs, and minutes the first time
	test/machine/prepare.sh
	go test -tags $(TAGS) -timeout 25m -v ./test/cluster

test-packer: build ## the templates in packer/, and an image made with them; needs what test-machine needs, and packer
	test/machine/prepare.sh packer:packer shellcheck:shellcheck
	go test -tags $(TAGS) -timeout 15m -v ./test/packer

lint: ## formatting, vet, staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "gofmt would change: $$unformatted"; exit 1; }
	go vet ./...
	go tool -modfile=test/lint/go.mod staticcheck ./...
	for module in $(MODULES); do (cd $$module && go vet ./...) || exit 1; done

release: ## packages, checksums and what is in them, in dist/; the same bytes from the same commit
	@cd packer/package && go run . -version '$(VERSION)' -date '$(DATE)' -dist '$(INTO)' $(ARCHS)
	$(foreach arch,$(ARCHS),GOOS=linux GOARCH=$(arch) GOAMD64=v1 GOARM64=v8.0 $(GOBUILD) -o bin/linux_$(arch)/nodeadm ./cmd/nodeadm &&) true
	cd packer/package && go run . -version '$(VERSION)' -date '$(DATE)' -binaries '$(CURDIR)/bin' -dist '$(INTO)' $(ARCHS)

release-check: ## two releases of HEAD, from two directories, are equal
	packer/package/check.sh

generate: ## the embedded tables from their sources
	go generate ./...

fuzz: ## each fuzz target for a while
	for target in nodeadm/config:FuzzSplitWords nodeadm/config:FuzzCallOf nodeadm/config:FuzzRead nodeadm/config:FuzzConvert internal/doctree:FuzzParse internal/userdata:FuzzParse internal/systemd:FuzzParseUnit internal/systemd:FuzzEnvironment internal/systemd:FuzzParseWords internal/cel:FuzzCompile data/instancetypes:Fuzz; do \
		go test -run '^$$' -fuzz "$${target##*:}" -fuzztime 30s -fuzzminimizetime 1x ./$${target%%:*} || exit 1; done

clean:
	rm -rf bin dist
