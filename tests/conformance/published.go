package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// document is what a server publishes of the version of a group, as OpenAPI v3.
func (c *collection) document(server, group string) (map[string]any, error) {
	client, err := c.bed.client("admin", false)
	if err != nil {
		return nil, err
	}
	answer, err := client.Get(server + "/openapi/v3/apis/" + group + "/v1alpha1")
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var document map[string]any
	return document, json.NewDecoder(answer.Body).Decode(&document)
}

// published is the schema of the kind that a server publishes, with what it refers to in its place. kube-apiserver takes a
// moment for that of a custom resource.
func (c *collection) published(server, group string) map[string]any {
	for range 100 {
		document, err := c.document(server, group)
		if err != nil {
			panic(err)
		}
		components, _ := document["components"].(map[string]any)
		schemas, _ := components["schemas"].(map[string]any)
		for _, schema := range schemas {
			if isSchemaOf(schema, group, c.kind.name) {
				return resolved(schema, schemas).(map[string]any)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	panic(fmt.Sprintf("%s publishes no schema of %s", server, c.kind.name))
}

func isSchemaOf(schema any, group, kind string) bool {
	s, _ := schema.(map[string]any)
	kinds, _ := s["x-kubernetes-group-version-kind"].([]any)
	for _, of := range kinds {
		if o, _ := of.(map[string]any); o["group"] == group && o["kind"] == kind {
			return true
		}
	}
	return false
}

// resolved has schemas in the place of references to them.
func resolved(value any, schemas map[string]any) any {
	switch value := value.(type) {
	case map[string]any:
		out := map[string]any{}
		refer := func(reference any) {
			name, _ := reference.(string)
			target, _ := resolved(schemas[strings.TrimPrefix(name, "#/components/schemas/")], schemas).(map[string]any)
			for key, inner := range target {
				if out[key] == nil || key != "description" && key != "default" {
					out[key] = inner
				}
			}
		}
		for key, inner := range value {
			if key != "$ref" && key != "allOf" {
				out[key] = resolved(inner, schemas)
			}
		}
		if all, _ := value["allOf"].([]any); len(all) == 1 {
			one, _ := all[0].(map[string]any)
			refer(one["$ref"])
		}
		if value["$ref"] != nil {
			refer(value["$ref"])
		}
		return out
	case []any:
		out := []any{}
		for _, inner := range value {
			out = append(out, resolved(inner, schemas))
		}
		return out
	}
	return value
}

// flat writes a schema down, a line for each place in it.
func flat(at string, value any, say func(string, ...any)) {
	switch value := value.(type) {
	case map[string]any:
		if len(value) == 0 {
			say("%s: {}", at)
		}
		for _, key := range sortedKeys(value) {
			switch key {
			// Only typed kinds are merged by a strategy.
			case "x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key", "x-kubernetes-group-version-kind":
			// What a custom resource says of itself and a typed kind leaves out: a null of it is nothing.
			case "nullable", "title", "x-kubernetes-selectable-fields":
			default:
				// A typed kind's struct is there in any case, and so is a text among several.
				if empty, isObject := value[key].(map[string]any); key == "default" && isObject && len(empty) == 0 {
					continue
				}
				if key == "default" && value[key] == "" && (strings.HasSuffix(at, "/items") || strings.HasSuffix(at, "/additionalProperties")) {
					continue
				}
				flat(at+"/"+key, value[key], say)
			}
		}
	default:
		say("%s: %s", at, encode(value))
	}
}

func init() {
	for _, k := range kinds {
		askStoa(k, "schema", func(c *collection) {
			group := c.apiVersion()[:strings.Index(c.apiVersion(), "/")]
			server := c.bed.apiserver
			if c.subject {
				server = c.bed.stoa
			}
			schema := c.published(server, group)
			// What every kind has is compared elsewhere.
			properties, _ := schema["properties"].(map[string]any)
			for _, name := range []string{"metadata", "apiVersion", "kind"} {
				delete(properties, name)
			}
			for _, name := range []string{"spec", "status"} {
				if of, _ := properties[name].(map[string]any); of != nil {
					delete(of, "description")
				}
			}
			flat("", schema, c.say)
		})
	}
}
