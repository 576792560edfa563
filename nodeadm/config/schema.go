package config

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/eks-bootstrap/nodeadm/internal/doctree"
)

// JSONSchema is the JSON Schema (draft 2020-12) of NodeConfig, made from the
// types that documents are checked with, so that the two cannot differ.
func JSONSchema() ([]byte, error) {
	schema := schemaOf(reflect.TypeFor[NodeConfig]())
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = "NodeConfig (" + apiVersion + ")"
	schema["required"] = []string{"apiVersion", "kind"}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(schema)
	return out.Bytes(), err
}

func schemaOf(t reflect.Type) map[string]any {
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Struct:
		properties := map[string]any{}
		for _, f := range doctree.Fields(t) {
			property := schemaOf(f.Type)
			property["description"] = f.Tag.Get("doc")
			if enum := f.Tag.Get("enum"); enum != "" {
				target := property
				if items, isList := property["items"].(map[string]any); isList {
					target = items
				}
				target["enum"] = strings.Split(enum, ",")
			}
			properties[f.Name] = property
		}
		return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			return map[string]any{"type": "object"}
		}
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int:
		return map[string]any{"type": "integer"}
	}
	return map[string]any{"type": "string"}
}
