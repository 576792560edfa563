package config

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/eks-bootstrap/nodeadm/internal/doctree"
)

var update = flag.Bool("update", false, "write docs/nodeconfig.schema.json")

func TestSchemaInDocs(t *testing.T) {
	text, err := JSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("..", "..", "docs", "nodeconfig.schema.json")
	if *update {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if there, err := os.ReadFile(file); err != nil || string(there) != string(text) {
		t.Errorf("docs/nodeconfig.schema.json is not what the types say (%v): go test ./nodeadm/config -run TestSchemaInDocs -update", err)
	}
}

func schema(t *testing.T) map[string]any {
	t.Helper()
	text, err := JSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	var s map[string]any
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSchemaHasEveryField goes through the types and the schema side by side.
func TestSchemaHasEveryField(t *testing.T) {
	count := 0
	var walk func(path string, typ reflect.Type, s map[string]any)
	walk = func(path string, typ reflect.Type, s map[string]any) {
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		switch {
		case typ.Kind() == reflect.Struct:
			properties, _ := s["properties"].(map[string]any)
			fields := doctree.Fields(typ)
			if len(properties) != len(fields) || s["additionalProperties"] != false || s["type"] != "object" {
				t.Errorf("%s has %d properties, want %d and no others: %v", path, len(properties), len(fields), s)
			}
			for _, f := range fields {
				property, _ := properties[f.Name].(map[string]any)
				if description, _ := property["description"].(string); description == "" || !strings.HasSuffix(description, ".") || description != f.Tag.Get("doc") {
					t.Errorf("%s.%s has the description %q", path, f.Name, description)
				}
				count++
				walk(path+"."+f.Name, f.Type, property)
			}
		case typ.Kind() == reflect.Slice:
			items, _ := s["items"].(map[string]any)
			walk(path+"[]", typ.Elem(), items)
		case typ.Kind() == reflect.Map && typ.Elem().Kind() != reflect.Interface:
			values, _ := s["additionalProperties"].(map[string]any)
			walk(path+".*", typ.Elem(), values)
		default:
			want := map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Map: "object"}[typ.Kind()]
			if s["type"] != want {
				t.Errorf("%s is a %v, want %s", path, s["type"], want)
			}
		}
	}
	s := schema(t)
	walk("", reflect.TypeFor[NodeConfig](), s)
	if count < 50 {
		t.Errorf("only %d fields", count)
	}
	if s["$schema"] != "https://json-schema.org/draft/2020-12/schema" || s["title"] != "NodeConfig (node.eks.aws/v1alpha1)" || fmt.Sprint(s["required"]) != "[apiVersion kind]" {
		t.Errorf("%v %v %v", s["$schema"], s["title"], s["required"])
	}
}

// validate is as much of JSON Schema as the schema uses.
func validate(s map[string]any, value any) error {
	for key := range s {
		if !slices.Contains([]string{"$schema", "title", "description", "type", "properties", "additionalProperties", "required", "items", "enum"}, key) {
			return fmt.Errorf("the schema uses %s", key)
		}
	}
	if allowed, given := s["enum"].([]any); given && !slices.Contains(allowed, value) {
		return fmt.Errorf("%v is none of %v", value, allowed)
	}
	kind := map[reflect.Kind]string{reflect.Map: "object", reflect.Slice: "array", reflect.Bool: "boolean", reflect.Float64: "number", reflect.String: "string"}[reflect.ValueOf(value).Kind()]
	if number, ok := value.(float64); ok && number == float64(int64(number)) {
		kind = "integer"
	}
	if s["type"] != kind {
		return fmt.Errorf("%v is of type %q, want %v", value, kind, s["type"])
	}
	switch value := value.(type) {
	case map[string]any:
		required, _ := s["required"].([]any)
		for _, name := range required {
			if _, there := value[name.(string)]; !there {
				return fmt.Errorf("%v is missing", name)
			}
		}
		properties, _ := s["properties"].(map[string]any)
		for name, member := range value {
			sub, known := properties[name].(map[string]any)
			if !known {
				switch others := s["additionalProperties"].(type) {
				case bool:
					return fmt.Errorf("%s is not known", name)
				case map[string]any:
					sub = others
				default:
					continue
				}
			}
			if err := validate(sub, member); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	case []any:
		items, _ := s["items"].(map[string]any)
		for i, item := range value {
			if err := validate(items, item); err != nil {
				return fmt.Errorf("%d: %w", i, err)
			}
		}
	}
	return nil
}

// TestSchemaAgreesWithCheck: an editor that knows the schema says the same as
// the program about the shape of a document.
func TestSchemaAgreesWithCheck(t *testing.T) {
	s := schema(t)
	const begin = `{"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", `
	documents := map[string]bool{
		`{"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig"}`: true,
		`{"apiVersion": "node.eks.aws/v1", "kind": "NodeConfig"}`:       false,
		`{"apiVersion": "node.eks.aws/v1alpha1", "kind": "Node"}`:       false,
		`{"apiVersion": 1, "kind": "NodeConfig"}`:                       false,
		`[]`: false, `"x"`: false, `5`: false,
		begin + `"metadata": {"name": "x", "labels": {"a": 1}}}`: true,
		begin + `"metadata": "x"}`:                               false,
		begin + `"status": {}}`:                                  false,
		begin + `"spec": []}`:                                    false,
	}
	for spec, valid := range map[string]bool{
		`{}`: true, `"x"`: false, `{"x": 1}`: false, `{"Cluster": {}}`: false,
		`{"cluster": {"name": "c", "apiServerEndpoint": "e", "certificateAuthority": "x", "cidr": "y", "id": "z", "enableOutpost": true, "ipFamily": "ipv6", "dnsAddresses": ["a", "b"], "describeRetries": 3}}`: true,
		`{"cluster": {"name": 5}}`: false, `{"cluster": {"name": true}}`: false, `{"cluster": {"name": ["x"]}}`: false, `{"cluster": {"name": {"x": "y"}}}`: false,
		`{"cluster": {"enableOutpost": "true"}}`: false, `{"cluster": {"ipFamily": "IPv6"}}`: false, `{"cluster": {"dnsAddresses": "a"}}`: false, `{"cluster": {"dnsAddresses": [1]}}`: false,
		`{"cluster": {"dnsAddresses": []}}`: true, `{"cluster": {"describeRetries": "3"}}`: false, `{"cluster": {"describeRetries": 1.5}}`: false, `{"cluster": {"describeRetries": -1}}`: true,
		`{"cluster": {"nmae": "c"}}`:                                   false,
		`{"kubelet": {"config": {"a": [1, {"b": null}], "c": false}}}`: true, `{"kubelet": {"config": []}}`: false, `{"kubelet": {"config": "a: b"}}`: false, `{"kubelet": {"config": {}}}`: true,
		`{"kubelet": {"flags": ["--a"], "maxPodsExpression": "1"}}`: true, `{"kubelet": {"flags": "--a"}}`: false, `{"kubelet": {"flags": [["--a"]]}}`: false, `{"kubelet": {"flags": {"a": "b"}}}`: false,
		`{"kubelet": {"maxPods": {"mode": "fixed", "value": 5, "customNetworking": true, "maxENIs": 1, "reservedENIs": 2, "cap": "none"}}}`: true,
		`{"kubelet": {"maxPods": 5}}`: false, `{"kubelet": {"maxPods": {"mode": "Fixed"}}}`: false, `{"kubelet": {"maxPods": {"cap": 110}}}`: false, `{"kubelet": {"maxPods": {"value": true}}}`: false,
		`{"kubelet": {"kubeReserved": {"policy": "legacy"}}}`: true, `{"kubelet": {"kubeReserved": {"policy": "none"}}}`: false, `{"kubelet": {"kubeReserved": {"cpu": "1"}}}`: false,
		`{"containerd": {"config": "x", "baseRuntimeSpec": {"a": {}}, "configFile": "/x"}}`: true, `{"containerd": {"config": {}}}`: false,
		`{"containerd": {"registryMirrors": {"docker.io": ["https://a"], "_default": []}, "selinux": true}}`: true, `{"containerd": {"selinux": "true"}}`: false, `{"containerd": {"registryMirrors": {"docker.io": "https://a"}}}`: false, `{"containerd": {"registryMirrors": ["https://a"]}}`: false,
		`{"containerd": {"baseRuntimeSpec": "{}"}}`: false,
		`{"featureGates": {"a": true, "b": false}}`: true, `{"featureGates": {"a": "true"}}`: false, `{"featureGates": ["a"]}`: false, `{"featureGates": {"a": {}}}`: false,
		`{"instance": {"localStorage": {"strategy": "RAID0", "mountPath": "/x", "disabledMounts": ["Containerd", "PodLogs", "SOCI"]}}}`: true,
		`{"instance": {"localStorage": {"strategy": "raid0"}}}`:                                                                         false, `{"instance": {"localStorage": {"disabledMounts": ["Podlogs"]}}}`: false, `{"instance": {"localStorage": {"disabledMounts": "PodLogs"}}}`: false,
		`{"instance": {"environment": {"default": {"A": "b"}, "x": {}}, "network": {"nameservers": ["a"], "domains": []}, "mountBPFFS": false}}`: true,
		`{"instance": {"environment": {"default": {"A": 1}}}}`: false, `{"instance": {"environment": {"A": "b"}}}`: false, `{"instance": {"environment": {"default": [{"A": "b"}]}}}`: false, `{"instance": {"mountBPFFS": 0}}`: false,
		`{"labels": {"fromTags": {"labelPrefix": "a", "taintPrefix": "b"}, "managedNodeGroup": true, "lifecycle": false}}`: true, `{"labels": {"fromTags": "a"}}`: false, `{"labels": {"lifecycle": "spot"}}`: false,
		`{"proxy": {"http": "a", "https": "b", "noProxy": ["c"]}}`: true, `{"proxy": "http://a"}`: false, `{"proxy": {"noProxy": "a,b"}}`: false,
		`{"runtime": {"name": "dockerd", "pauseAccount": "1", "pauseVersion": "2", "dockerConfig": "{}", "dockerBridge": true}}`: true, `{"runtime": {"name": "cri-o"}}`: false, `{"runtime": {"dockerConfig": {}}}`: false,
	} {
		documents[begin+`"spec": `+spec+`}`] = valid
	}
	for text, valid := range documents {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		trees, problems := doctree.Parse([]byte(text), "x", 1)
		if len(trees) != 1 || len(problems) > 0 {
			t.Fatal(text, problems)
		}
		problems = doctree.Check(trees[0], reflect.TypeFor[NodeConfig]())
		if err := validate(s, value); (err == nil) != valid || (len(problems) == 0) != valid {
			t.Errorf("%s is valid: %t; the schema says %v and Check %v", text, valid, err, problems)
		}
	}
	for _, text := range []string{`{}`, `{"kind": "NodeConfig"}`, `{"apiVersion": "node.eks.aws/v1alpha1"}`} {
		var value any
		_ = json.Unmarshal([]byte(text), &value)
		if _, err := Load(sourcesOf(text), ReadOptions{}); err == nil || validate(s, value) == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}
