package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// OpenAPI documents of either version, in what both servers can have in common. Left out are texts for people, the order of
// lists in which it says nothing, the hashes in names of parameters, which are of such texts, and what only one of them serves:
// v1beta1, trawlers, and protobuf, which a check of its own is about.

// outline writes down what a document is besides paths and schemas.
func (s *session) outline(document map[string]any) {
	rest := maps.Clone(document)
	for _, name := range []string{"paths", "components", "definitions", "parameters"} {
		delete(rest, name)
	}
	// Each server has a name of its own.
	rest["info"] = sortedKeys(asObject(document["info"]))
	s.say("%s", compact(rest))
	s.say("components: %s", compact(sortedKeys(asObject(document["components"]))))
	names := map[string]bool{}
	for name := range asObject(document["parameters"]) {
		names[parameterHash.ReplaceAllString(name, "")] = true
	}
	s.say("parameters: %s", compact(sortedKeys(names)))
	for _, path := range sortedKeys(asObject(document["paths"])) {
		if !ofOthers.MatchString(path) {
			s.say("%s", path)
		}
	}
}

var (
	parameterHash = regexp.MustCompile(`-[\w-]{8}$`)
	// What a path or a schema is called that only one of the servers has.
	ofOthers = regexp.MustCompile(`\bv1beta1\b|\bfleet\b|\bautoscaling\b`)
)

// operations writes down what can be asked: actions, kinds, parameters, bodies and answers.
func (s *session) operations(document map[string]any) {
	s.maskPackages(document)
	paths := asObject(document["paths"])
	for _, path := range sortedKeys(paths) {
		if ofOthers.MatchString(path) {
			continue
		}
		item := asObject(paths[path])
		s.say("%s", path)
		if item["parameters"] != nil {
			s.say("  all take %s", parameters(document, item["parameters"]))
		}
		for _, method := range sortedKeys(item) {
			if method != "parameters" {
				s.operation(document, method, asObject(item[method]))
			}
		}
	}
}

func (s *session) operation(document map[string]any, method string, operation map[string]any) {
	rest := maps.Clone(operation)
	for _, name := range []string{"operationId", "tags", "description", "parameters", "consumes", "produces", "requestBody", "responses"} {
		delete(rest, name)
	}
	s.say("  %s %v %v: %v", method, operation["operationId"], operation["tags"], operation["description"])
	s.say("    takes %s", parameters(document, operation["parameters"]))
	s.say("    %s -> %s", sortedMedia(texts(operation["consumes"])), sortedMedia(texts(operation["produces"])))
	if body := asObject(operation["requestBody"]); body["content"] != nil {
		s.say("    body, required %v: %s", body["required"], contents(body))
	}
	responses := asObject(operation["responses"])
	for _, code := range sortedKeys(responses) {
		answer := asObject(responses[code])
		s.say("    %s %v %s%s", code, answer["description"], schemaOf(answer), contents(answer))
	}
	s.say("    %s", compact(rest))
}

// contents are the forms of a body in v3, with the schema of each.
func contents(holder map[string]any) string {
	content := asObject(holder["content"])
	var all []string
	for _, media := range sortedMedia(sortedKeys(content)) {
		all = append(all, media+" "+schemaOf(asObject(content[media])))
	}
	return strings.Join(all, ", ")
}

func schemaOf(holder map[string]any) string {
	if holder["schema"] == nil {
		return ""
	}
	return compact(holder["schema"])
}

func sortedMedia(media []string) []string {
	media = slices.DeleteFunc(media, isProtobuf)
	slices.Sort(media)
	return media
}

func isProtobuf(media string) bool {
	return strings.HasPrefix(media, "application/vnd.kubernetes.protobuf")
}

// parameters are names with what else there is to each; those that are shared are looked up.
func parameters(document map[string]any, value any) string {
	list, _ := value.([]any)
	var all []string
	for _, parameter := range list {
		p, suffix := asObject(parameter), ""
		if reference, ok := p["$ref"].(string); ok {
			name := strings.TrimPrefix(reference, "#/parameters/")
			p, suffix = asObject(asObject(document["parameters"])[name]), " shared"
		}
		rest := maps.Clone(p)
		delete(rest, "name")
		delete(rest, "description")
		all = append(all, fmt.Sprintf("%v%s", p["name"], compact(rest))+suffix)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// schemas writes down the schemas of a document.
func (s *session) schemas(document map[string]any) {
	s.maskPackages(document)
	shown := map[string]any{}
	for name, schema := range schemasOf(document) {
		if !ofOthers.MatchString(name) {
			shown[s.masked(name)] = comparable(schema)
		}
	}
	for _, name := range sortedKeys(shown) {
		s.say("%s %s", name, compact(shown[name]))
	}
}

func schemasOf(document map[string]any) map[string]any {
	if document["definitions"] != nil {
		return asObject(document["definitions"])
	}
	return asObject(asObject(document["components"])["schemas"])
}

// maskPackages hides what schemas of the group's kinds are called by: their package in Go.
func (s *session) maskPackages(document map[string]any) {
	for name, schema := range schemasOf(document) {
		kinds, _ := asObject(schema)["x-kubernetes-group-version-kind"].([]any)
		if len(kinds) != 1 {
			continue
		}
		is := asObject(kinds[0])
		kind, _ := is["kind"].(string)
		if fmt.Sprintf("%v/%v", is["group"], is["version"]) == groupVersion && !slices.Contains(s.masks, mask{strings.TrimSuffix(name, kind), "<package>."}) {
			s.mask(strings.TrimSuffix(name, kind), "<package>.")
		}
	}
}

// comparable is a schema without texts for people, and without what is said of kinds of others.
func comparable(value any) any {
	switch value := value.(type) {
	case map[string]any:
		copied := map[string]any{}
		for key, inner := range value {
			if _, isText := inner.(string); key == "description" && isText {
				continue
			}
			copied[key] = comparable(inner)
			if names := texts(inner); key == "required" && names != nil {
				slices.Sort(names)
				copied[key] = names
			}
		}
		return copied
	case []any:
		copied := []any{}
		for _, inner := range value {
			if is := asObject(inner); is["kind"] == nil || !ofOthers.MatchString(fmt.Sprint(is["group"], " ", is["version"])) {
				copied = append(copied, comparable(inner))
			}
		}
		return copied
	}
	return value
}

func asObject(value any) map[string]any {
	object, _ := value.(map[string]any)
	return object
}

func texts(value any) []string {
	list, _ := value.([]any)
	var all []string
	for _, inner := range list {
		if text, ok := inner.(string); ok {
			all = append(all, text)
		}
	}
	return all
}

// media writes down every form that a document speaks of.
func (s *session) media(value any) {
	found := map[string]bool{}
	var look func(any)
	look = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			for _, media := range append(texts(value["consumes"]), texts(value["produces"])...) {
				found[media] = true
			}
			for media := range asObject(value["content"]) {
				found[media] = true
			}
			for _, inner := range value {
				look(inner)
			}
		case []any:
			for _, inner := range value {
				look(inner)
			}
		}
	}
	look(value)
	for _, media := range sortedKeys(found) {
		s.say("%s", media)
	}
}
