package main

import (
	"fmt"
	"strings"
)

const (
	merge     = "application/merge-patch+json"
	jsonPatch = "application/json-patch+json"
)

// Creates, updates, patches, deletes.
func init() {
	create := func(name string, body any, options ...option) {
		add("create", name, func(s *session) { s.do("POST", s.flunders(), body, options...) })
	}
	query := func(name, query string, body any, options ...option) {
		add("create", name, func(s *session) {
			s.do("POST", s.flunders()+query, body, options...)
			s.do("GET", s.flunders(), nil, quiet)
		})
	}
	create("an object", object("a", "spec.reference", "x"))
	create("an object of the other type", object("a", "spec.reference", "x", "spec.referenceType", "Fischer"))
	create("an invalid object", object("a", "spec.referenceType", "Fischer"))
	create("two invalid fields", object("A_", "spec.referenceType", "Flunder", "metadata.labels", map[string]any{"-": "-"}))
	create("what only servers set", object("a", "metadata.uid", "mine", "metadata.creationTimestamp", "2001-01-01T00:00:00Z",
		"metadata.generation", 7, "metadata.selfLink", "/x", "metadata.deletionTimestamp", "2001-01-01T00:00:00Z",
		"metadata.deletionGracePeriodSeconds", 30, "status", map[string]any{}))
	create("a version", object("a", "metadata.resourceVersion", "5"))
	create("an empty version", object("a", "metadata.resourceVersion", ""))
	create("no name", object("a", "metadata.name", nil))
	create("an empty name", object(""))
	create("no metadata", object("a", "metadata", nil))
	create("no kind", object("a", "kind", nil))
	create("no apiVersion", object("a", "apiVersion", nil))
	create("neither kind nor apiVersion", object("a", "apiVersion", nil, "kind", nil))
	create("another kind", object("a", "kind", "Fischer"))
	create("an unknown kind", object("a", "kind", "Other"))
	create("another version", object("a", "apiVersion", "wardle.example.com/v9"))
	create("another group", object("a", "apiVersion", "other.example.com/v1alpha1"))
	create("a malformed apiVersion", object("a", "apiVersion", "a/b/c"))
	create("an apiVersion that is no text", object("a", "apiVersion", 1))
	create("a list", map[string]any{"apiVersion": groupVersion, "kind": "FlunderList", "items": []any{}})
	create("a Status", map[string]any{"apiVersion": "v1", "kind": "Status"})
	create("the namespace of the path", func() any { return object("a") }())
	create("another namespace", object("a", "metadata.namespace", "default"))
	for name, body := range map[string]string{
		"nothing": "", "null": "null", "a number": "5", "a text": `"x"`, "an array": "[]", "an empty object": "{}", "half an object": `{"a":`,
		"no JSON": "hello", "two documents": `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"a"}}{}`,
		"blanks": "  \n ", "bytes that are no UTF-8": "{\"a\":\"\xff\xfe\"}", "a byte order mark": "\ufeff{}", "YAML as JSON": "apiVersion: v1\nkind: X\n",
		"a comment": `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder"/*x*/}`, "a comma too many": `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder",}`,
	} {
		create("a body of "+name, body)
	}
	deep := func(count int) string {
		return `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"a"},"spec":` + strings.Repeat(`{"x":`, count) + "1" + strings.Repeat("}", count) + "}"
	}
	create("a nesting of 50", deep(50))
	create("a nesting of 20,000", deep(20_000))
	create("a body of 4 MiB", `{"x":"`+strings.Repeat("x", 4<<20)+`"}`)
	for _, wrong := range []struct {
		path  string
		value any
	}{
		{"spec", "x"}, {"spec", 1}, {"spec", []any{}}, {"spec.reference", 1}, {"spec.reference", true}, {"spec.reference", map[string]any{}}, {"spec.reference", []any{"x"}},
		{"metadata", "x"}, {"metadata.name", 1}, {"metadata.labels", "x"}, {"metadata.labels", map[string]any{"a": 1}}, {"metadata.annotations", []any{}},
		{"metadata.finalizers", "x"}, {"metadata.finalizers", []any{1}}, {"metadata.ownerReferences", []any{"x"}}, {"metadata.creationTimestamp", "yesterday"},
		{"metadata.creationTimestamp", 5}, {"metadata.generation", "x"}, {"metadata.deletionGracePeriodSeconds", "x"}, {"metadata.managedFields", "x"}, {"status", "x"},
		{"metadata.uid", 5}, {"metadata.resourceVersion", 5}, {"kind", 5},
	} {
		create(fmt.Sprintf("the wrong type in %s: %s", wrong.path, encode(wrong.value)), object("a", wrong.path, wrong.value))
	}
	part := func(fields string) string {
		return `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder",` + fields + `}`
	}
	for name, fields := range map[string]string{
		"a field and the name": `"spec":{"reference":1},"metadata":{"name":true}`, "the version and the name": `"metadata":{"resourceVersion":5,"name":true}`,
		"a field and a time": `"spec":{"reference":1},"metadata":{"name":"a","creationTimestamp":5}`, "a label and a field": `"metadata":{"name":"a","labels":{"z":1}},"spec":{"reference":1}`,
	} {
		create("wrong types in "+name, part(fields))
		create("wrong types in "+name+", in YAML", part(fields), contentType("application/yaml"))
	}
	for name, fields := range map[string]string{
		"a field": `"metadata":{"name":"a"},"spec":{"reference":1,"reference":"x"}`, "a spec": `"metadata":{"name":"a"},"spec":{"reference":1},"spec":{"reference":"x"}`,
		"a label": `"metadata":{"name":"a","labels":{"l":1,"l":"x"}}`, "a list": `"metadata":{"name":"a","finalizers":[1],"finalizers":[]}`,
	} {
		for _, validation := range []string{"Strict", "Warn", "Ignore"} {
			query("a wrong type in "+name+" that stands again, with fieldValidation="+validation, "?fieldValidation="+validation, part(fields))
		}
	}
	for _, null := range []string{"spec", "status", "metadata.labels", "metadata.annotations", "spec.reference", "metadata.finalizers"} {
		path := strings.Split(null, ".")
		create("null in "+null, func() any {
			o := object("a")
			at := o
			for _, key := range path[:len(path)-1] {
				if at[key] == nil {
					at[key] = map[string]any{}
				}
				at = at[key].(map[string]any)
			}
			at[path[len(path)-1]] = nil
			return o
		}())
	}

	// Names and other metadata.
	for _, name := range []string{"UPPER", "a_b", "-a", "a-", "a..b", "a.b", "a/b", "ä", strings.Repeat("a", 253), strings.Repeat("a", 254), " ", "a b", ".", "..", "%"} {
		shown := name
		if len(shown) > 20 {
			shown = fmt.Sprintf("%d letters", len(name))
		}
		create("the name "+shown, object(name))
	}
	add("create", "a generated name", func(s *session) {
		a := s.do("POST", s.flunders(), object("", "metadata.generateName", "web-"), quiet)
		s.say("%d %d %s %s", a.code, len(a.text("metadata", "name")), a.text("metadata", "name")[:4], a.text("metadata", "generateName"))
		a = s.do("POST", s.flunders(), object("", "metadata.generateName", strings.Repeat("x", 70)), quiet)
		s.say("%d %d", a.code, len(a.text("metadata", "name")))
	})
	create("a name and a generated one", object("a", "metadata.generateName", "web-"))
	create("a bad name to generate", object("", "metadata.generateName", "Web_"))
	for _, bad := range []struct {
		name, path string
		value      any
	}{
		{"a label key", "labels", map[string]any{"a/b/c": "x"}}, {"an empty label key", "labels", map[string]any{"": "x"}},
		{"a label value", "labels", map[string]any{"a": "-"}}, {"a long label value", "labels", map[string]any{"a": strings.Repeat("x", 64)}},
		{"a label prefix", "labels", map[string]any{"A_/b": "x"}}, {"an annotation key", "annotations", map[string]any{"a b": "x"}},
		{"annotations of 256 KiB", "annotations", map[string]any{"a": strings.Repeat("x", 256<<10)}},
		{"a finalizer", "finalizers", []any{"a b"}}, {"a finalizer of no domain", "finalizers", []any{"plain"}}, {"an empty finalizer", "finalizers", []any{""}},
		{"both finalizers", "finalizers", []any{"orphan", "foregroundDeletion"}},
		{"an owner without a uid", "ownerReferences", []any{map[string]any{"apiVersion": "v1", "kind": "K", "name": "n"}}},
		{"an empty owner", "ownerReferences", []any{map[string]any{}}},
		{"an event as owner", "ownerReferences", []any{map[string]any{"apiVersion": "v1", "kind": "Event", "name": "n", "uid": "u"}}},
		{"two controllers", "ownerReferences", []any{
			map[string]any{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u", "controller": true},
			map[string]any{"apiVersion": "v1", "kind": "K", "name": "m", "uid": "v", "controller": true},
		}},
		{"the same owner twice", "ownerReferences", []any{
			map[string]any{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"},
			map[string]any{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"},
		}},
		{"an owner's version", "ownerReferences", []any{map[string]any{"apiVersion": "a/b/c", "kind": "K", "name": "n", "uid": "u"}}},
		{"a bad manager", "managedFields", []any{map[string]any{"manager": "x", "operation": "Other"}}},
	} {
		create("metadata with "+bad.name, object("a", "metadata."+bad.path, bad.value))
	}

	// Options.
	query("dry", "?dryRun=All", object("a"))
	query("dry, of a version", "?dryRun=All", object("a", "metadata.resourceVersion", "5"))
	query("dry, in letters that are escaped", "?dryRun=%3Cx%3E%26", object("a"))
	query("validation in letters that are escaped", "?fieldValidation=a%7F%3C", object("a"))
	for _, version := range []string{"v1", "/v1", "events.k8s.io/v1"} {
		owner := map[string]any{"apiVersion": version, "kind": "Event", "name": "e", "uid": "u", "controller": true}
		query("an event of "+version+" as the owner", "", object("a", "metadata.ownerReferences", []any{owner}))
	}
	query("an annotation in a letter of two", "", object("a", "metadata.annotations", map[string]any{"\u0130": "x"}))
	query("dry in another way", "?dryRun=Some", object("a"))
	query("dry twice", "?dryRun=All&dryRun=All", object("a"))
	query("dry and not", "?dryRun=All&dryRun=Some", object("a"))
	query("dry in no way", "?dryRun=", object("a"))
	query("dry and invalid", "?dryRun=All", object("a", "spec.referenceType", "Fischer"))
	add("create", "dry changes nothing", func(s *session) {
		s.do("POST", s.flunders()+"?dryRun=All", object("a"))
		s.do("GET", s.flunder("a"), nil)
	})
	for _, validation := range []string{"Strict", "Warn", "Ignore", "", "Other", "strict"} {
		for name, body := range map[string]any{
			"an unknown field":  object("a", "spec.unknown", 1, "other", map[string]any{"x": 1}, "metadata.foo", "x"),
			"a duplicate field": `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"a","name":"a"},"spec":{"reference":"x","reference":"y"},"spec":{}}`,
			"a good object":     object("a"),
			"another case":      `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"a"},"Spec":{"Reference":"x"}}`,
		} {
			query(name+" with fieldValidation="+validation, "?fieldValidation="+validation, body)
		}
		for name, body := range map[string]string{
			"an unknown field in YAML":  "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: a, foo: x}\nspec: {unknown: 1}\n",
			"a duplicate field in YAML": "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata:\n  name: a\n  name: a\nspec:\n  reference: x\n  reference: \"y\"\n",
		} {
			query(name+" with fieldValidation="+validation, "?fieldValidation="+validation, body, contentType("application/yaml"))
		}
	}
	// A key is told with the line of its value, of whatever type it is; what is merged is as if it stood there.
	for name, body := range map[string]string{
		"a duplicate mapping in YAML":    "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: a}\nspec:\n  reference: x\nspec:\n  reference: z\n",
		"a duplicate sequence in YAML":   "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata:\n  name: a\n  finalizers: [x/y]\n  finalizers:\n  - x/z\n",
		"a duplicate null in YAML":       "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: a}\nspec:\n  reference: x\n  reference:\n",
		"duplicates by old rules":        "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: a, labels: {0x10: a, 16: b, on: c, true: d}}\n",
		"keys of two types in YAML":      "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: a, labels: {1: a, '1': a}}\n",
		"a duplicate before a merge key": "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: a}\nspec:\n  reference: z\n  <<: {reference: x}\n",
		"a duplicate after a merge key":  "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: a}\nspec:\n  <<: {reference: x}\n  reference: z\n",
		"duplicates in a merge key":      "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: a}\nspec: {<<: [{reference: x}, {reference: z}]}\n",
		"a key in another way in YAML":   "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: a}\nspec:\n  ? reference\n  : x\n  ? reference\n  :\n    z\n",
	} {
		for _, validation := range []string{"Strict", "Warn"} {
			query(name+" with fieldValidation="+validation, "?fieldValidation="+validation, body, contentType("application/yaml"))
		}
	}
	for _, manager := range []string{"me", strings.Repeat("m", 129), "a%0Ab", "", "ü"} {
		shown := manager
		if len(shown) > 20 {
			shown = "129 letters"
		}
		query("fieldManager="+shown, "?fieldManager="+manager, object("a"))
	}
	query("an unknown option", "?unknown=x", object("a"))
	query("a timeout", "?timeout=5s", object("a"))

	// Formats of bodies.
	yaml := "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata:\n  name: a\nspec:\n  reference: x\n"
	create("YAML", yaml, contentType("application/yaml"))
	create("YAML, answered in YAML", yaml, contentType("application/yaml"), accept("application/yaml"))
	create("YAML of two documents", yaml+"---\n"+yaml, contentType("application/yaml"))
	create("YAML with an anchor", "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: &m\n  name: a\n  labels: {a: b}\n", contentType("application/yaml"))
	create("YAML that is malformed", "a: b: c", contentType("application/yaml"))
	create("YAML of old booleans", "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: a}\nspec: {reference: yes}\n", contentType("application/yaml"))
	create("empty YAML", "", contentType("application/yaml"))
	create("JSON as YAML", object("a"), contentType("application/yaml"))
	for _, media := range []string{"", "text/plain", "application/xml", "application/json; charset=utf-8", "APPLICATION/JSON", "application/cbor", "nonsense", "application/json, application/yaml", "*/*", merge, "application/x-www-form-urlencoded",
		";", ";;", "application/json;", "application/json;;", "application/json;a=b;a=c", "application/json;a=b;A=b", `application/json;a="b;c"`, `application/json;a="b`, "application/json; =b", "application/"} {
		create("a Content-Type of "+media, object("a"), contentType(media))
	}
	create("answered as a table", object("a"), accept(asTable))
	create("answered as metadata", object("a"), accept(asPartial))
	create("answered in HTML", object("a"), accept("text/html"))
	add("create", "what is there", func(s *session) {
		s.create("a")
		s.do("POST", s.flunders(), object("a"))
		s.do("POST", s.flunders()+"?dryRun=All", object("a"))
	})
	add("create", "what is there, with a name to generate beside it", func(s *session) {
		s.create("a")
		s.do("POST", s.flunders(), object("a", "metadata.generateName", "b-"))
	})
	for _, time := range []string{"2020-01-02t03:04:05z", "2020-01-02 03:04:05Z", "2020-01-02T3:04:05Z", "2020-01-02T03:04:05.12345678901Z", "2020-01-02", "2020-02-30T00:00:00Z", "10000-01-01T00:00:00Z"} {
		create("an object to be deleted at "+time, object("a", "metadata.deletionTimestamp", time))
	}
	add("create", "what is going", func(s *session) {
		s.create("a", "metadata.finalizers", []string{"example.com/x"})
		s.setup("DELETE", s.flunder("a"), nil)
		s.do("POST", s.flunders(), object("a"))
	})
	add("create", "in a namespace that is not there", func(s *session) {
		s.do("POST", root+"/namespaces/none-such/flunders", object("a"))
		s.do("POST", root+"/namespaces/UPPER/flunders", object("a"))
	})
	add("create", "a fischer", func(s *session) {
		s.do("POST", fischers, fischer(s.name("f"), "disallowedFlunders", []string{"x"}))
		s.do("POST", fischers, fischer(s.name("g"), "metadata.namespace", "default"))
		s.do("POST", fischers, fischer(s.name("h"), "disallowedFlunders", "x"))
		s.do("POST", fischers, fischer(s.name("i"), "disallowedFlunders", []any{1}))
	})

	// Updates.
	update := func(name string, change func(s *session, a map[string]any) any, options ...option) {
		add("update", name, func(s *session) {
			a := s.create("a", "spec.reference", "x", "metadata.labels", map[string]any{"k": "v"})
			s.do("PUT", s.flunder("a"), change(s, a.json), options...)
			after := s.do("GET", s.flunder("a"), nil, quiet)
			s.say("a new version: %t", after.rv() != a.rv())
		})
	}
	set := func(more ...any) func(*session, map[string]any) any {
		return func(_ *session, a map[string]any) any { return with(a, more...) }
	}
	hidden := func(r *request) { r.unshownBody = true }
	update("nothing", set(), hidden)
	update("the spec", set("spec.reference", "y"), hidden)
	update("the type alone", set("spec.referenceType", "Other"), hidden)
	update("labels", set("metadata.labels", map[string]any{"a": "b"}), hidden)
	update("no labels", set("metadata.labels", nil), hidden)
	update("no version", set("metadata.resourceVersion", nil), hidden)
	update("a version of 0", set("metadata.resourceVersion", "0"), hidden)
	update("a stale version", set("metadata.resourceVersion", "1"), hidden)
	update("a version that is none", set("metadata.resourceVersion", "abc"), hidden)
	update("another uid", set("metadata.uid", "other"), hidden)
	update("no uid", set("metadata.uid", nil), hidden)
	update("another name", set("metadata.name", "b"), hidden)
	update("no name", set("metadata.name", nil), hidden)
	update("another namespace", set("metadata.namespace", "default"), hidden)
	update("no namespace", set("metadata.namespace", nil), hidden)
	update("another creationTimestamp", set("metadata.creationTimestamp", "2001-01-01T00:00:00Z"), hidden)
	update("no creationTimestamp", set("metadata.creationTimestamp", nil), hidden)
	update("a deletionTimestamp", set("metadata.deletionTimestamp", "2001-01-01T00:00:00Z"), hidden)
	update("a deletionGracePeriodSeconds", set("metadata.deletionGracePeriodSeconds", 5), hidden)
	update("another generation", set("metadata.generation", 9), hidden)
	update("a selfLink", set("metadata.selfLink", "/x"), hidden)
	update("another kind", set("kind", "Fischer"), hidden)
	update("another version of the API", set("apiVersion", "wardle.example.com/v9"), hidden)
	update("no kind", set("kind", nil, "apiVersion", nil), hidden)
	update("a bad label", set("metadata.labels", map[string]any{"-": "x"}), hidden)
	update("an invalid spec", set("spec.reference", ""), hidden)
	update("a wrong type", set("spec.reference", 5), hidden)
	update("an unknown field", set("spec.unknown", 5), hidden)
	update("nothing at all", func(*session, map[string]any) any { return "" })
	update("in YAML", func(_ *session, a map[string]any) any { return with(a, "spec.reference", "y") }, hidden, contentType("application/yaml"))
	update("in a patch's format", set(), hidden, contentType(merge))
	for _, options := range []string{"dryRun=All", "dryRun=Some", "fieldValidation=Strict", "fieldManager=me", "force=true", "fieldValidation=Other"} {
		add("update", "with "+options, func(s *session) {
			a := s.create("a")
			s.do("PUT", s.flunder("a")+"?"+options, with(a.json, "spec.reference", "y", "spec.unknown", 1), hidden)
			after := s.do("GET", s.flunder("a"), nil, quiet)
			s.say("a new version: %t", after.rv() != a.rv())
		})
	}
	add("update", "what is not there", func(s *session) {
		s.do("PUT", s.flunder("none"), object("none"))
		s.do("PUT", s.flunder("none"), object("none", "metadata.resourceVersion", "5"))
		s.do("PUT", s.flunder("none"), object("none", "metadata.uid", "x"))
		s.do("PUT", s.flunder("none"), object("other"))
	})
	add("update", "finalizers of what is going", func(s *session) {
		s.create("a", "metadata.finalizers", []string{"example.com/x", "example.com/y"})
		a := s.setup("DELETE", s.flunder("a"), nil)
		s.do("PUT", s.flunder("a"), with(a.json, "metadata.finalizers", []string{"example.com/x", "example.com/z"}), hidden)
		s.do("PUT", s.flunder("a"), with(a.json, "metadata.labels", map[string]any{"a": "b"}), hidden)
		a = s.do("GET", s.flunder("a"), nil, quiet)
		s.do("PUT", s.flunder("a"), with(a.json, "metadata.deletionTimestamp", nil), hidden)
		a = s.do("GET", s.flunder("a"), nil, quiet)
		s.do("PUT", s.flunder("a")+"?dryRun=All", with(a.json, "metadata.finalizers", nil), hidden)
		a = s.do("GET", s.flunder("a"), nil, quiet)
		s.do("PUT", s.flunder("a"), with(a.json, "metadata.finalizers", nil), hidden)
		s.do("GET", s.flunder("a"), nil)
	})
	add("update", "labels of an object that is read as a table", func(s *session) {
		a := s.create("a")
		s.do("PUT", s.flunder("a"), with(a.json, "metadata.labels", map[string]any{"a": "b"}), hidden, accept(asTable))
		a = s.do("GET", s.flunder("a"), nil, quiet)
		s.do("PUT", s.flunder("a"), with(a.json, "metadata.labels", map[string]any{"a": "c"}), hidden, accept(asPartial))
	})

	// Patches.
	patch := func(name, media string, body any) {
		add("patch", name, func(s *session) {
			a := s.create("a", "spec.reference", "x", "metadata.labels", map[string]any{"k": "v"})
			s.do("PATCH", s.flunder("a"), body, contentType(media))
			after := s.do("GET", s.flunder("a"), nil, quiet)
			s.say("a new version: %t", after.rv() != a.rv())
		})
	}
	for _, body := range []string{
		`{"spec":{"reference":"y"}}`, `{}`, `{"spec":{"reference":null}}`, `{"spec":null}`, `{"metadata":{"labels":{"k":null,"l":"m"}}}`, `{"metadata":null}`,
		`{"metadata":{"name":"b"}}`, `{"metadata":{"uid":"other"}}`, `{"metadata":{"resourceVersion":"1"}}`, `{"metadata":{"namespace":"default"}}`,
		`{"kind":"Fischer"}`, `{"apiVersion":"v1"}`, `{"spec":{"reference":5}}`, `{"spec":"x"}`, `{"spec":{"unknown":1}}`, `{"spec":{"referenceType":"Fischer","reference":""}}`,
		``, `null`, `[]`, `5`, `"x"`, `{`, `{"metadata":{"labels":{"-":"x"}}}`, `{"metadata":{"creationTimestamp":null}}`, `{"metadata":{"finalizers":["a b"]}}`,
		`{"metadata":{"deletionTimestamp":"2001-01-01T00:00:00Z"}}`, `{"metadata":{"generation":9}}`, `{"spec":{"reference":"y","reference":"z"}}`, `{"status":{"x":1}}`,
		`{"metadata":{"resourceVersion":"abc"}}`, `{"metadata":{"resourceVersion":""}}`, `{"metadata":{"labels":{"a":"1"},"labels":{"b":"2"}}}`,
		`{"apiVersion":""}`, `{"apiVersion":null}`, `{"kind":""}`, `{"kind":null}`, `{"apiVersion":null,"kind":null}`, `{"apiVersion":null,"spec":{"reference":5}}`, `{"apiVersion":5}`,
		`{"KIND":"Fischer"}`, `{"ApiVersion":"v9"}`,
	} {
		patch("merge "+body, merge, body)
	}
	for _, body := range []string{
		`[{"op":"replace","path":"/spec/reference","value":"y"}]`, `[]`, `[{"op":"add","path":"/metadata/labels/l","value":"m"}]`, `[{"op":"remove","path":"/metadata/labels/none"}]`,
		`[{"op":"test","path":"/spec/reference","value":"z"}]`, `[{"op":"test","path":"/spec/reference","value":"x"}]`, `[{"op":"replace","path":"/spec/none","value":1}]`,
		`[{"op":"move","from":"/metadata/labels/k","path":"/metadata/labels/l"}]`, `[{"op":"copy","from":"/metadata/labels/k","path":"/metadata/labels/l"}]`,
		`[{"op":"other","path":"/x"}]`, `[{"path":"/x"}]`, `[{"op":"add"}]`, `{"op":"add"}`, ``, `null`, `[1]`, `[`, `[{"op":"add","path":"spec","value":1}]`,
		`[{"op":"replace","path":"/metadata/name","value":"b"}]`, `[{"op":"replace","path":"","value":{}}]`, `[{"op":"replace","path":"/spec/reference","value":5}]`,
		`[{"op":"add","path":"/spec/unknown","value":5}]`, `[{"op":"replace","path":"/metadata/resourceVersion","value":"1"}]`, `[{"op":"replace","path":"/metadata/uid","value":"x"}]`,
		`[{"op":"add","path":"/metadata/labels/a~1b","value":"m"}]`, `[{"op":"remove","path":"/metadata/labels"}]`, `[{"op":"add","path":"/metadata/finalizers/-","value":"x/y"}]`,
		`[{"op":"add","path":"/metadata/finalizers","value":["example.com/y"]}]`, `[{"op":"test","path":"/spec/none","value":null}]`, `[{"op":"remove","path":"/spec"}]`,
		`[{"op":"remove","path":"/metadata"}]`, `[{"op":"replace","path":"/kind","value":"Fischer"}]`, `[{"op":"replace","path":"/spec/reference","value":"y","x":1}]`,
		`[{"op":"replace","path":"/spec/reference"}]`, `[{"op":"add","path":"/a/b/c","value":1}]`,
		`[{"op":"copy","from":"/metadata/labels/none","path":"/metadata/labels/l"}]`, `[{"op":"move","from":"/metadata/labels/none","path":"/metadata/labels/l"}]`,
		`[{"op":"test","path":"/spec/none/x","value":null}]`, `[{"op":"add","path":"/metadata/labels/~2","value":"x"}]`, `[{"op":1,"path":"/x"}]`, `[{"op":"test","path":1}]`, `[null]`,
		`[{"op":"replace","path":"spec/reference","value":"y"}]`, `[{"op":"replace","path":"x/spec/reference","value":"y"}]`, `[{"op":"test","path":"x/spec/reference","value":"x"}]`,
		`[{"op":"remove","path":"x"}]`, `[{"op":"copy","from":"x/metadata/labels/k","path":"y/metadata/labels/l"}]`, `[{"op":"move","from":"metadata/metadata/labels/k","path":"metadata/labels/l"}]`,
		`[{"op":"remove","path":"/apiVersion"}]`, `[{"op":"replace","path":"/apiVersion","value":""}]`, `[{"op":"remove","path":"/kind"}]`,
	} {
		patch("JSON "+body, jsonPatch, body)
	}
	for name, operation := range map[string]string{
		"as Go writes it": `{"op":"test","path":"/metadata/annotations/a","value":"x\u003cé"}`, "with a bracket": `{"op":"test","path":"/metadata/annotations/a","value":"x<é"}`,
		"with an escape":         `{"op":"test","path":"/metadata/annotations/a","value":"x\u003c\u00e9"}`,
		"in a map, with escapes": `{"op":"test","path":"/metadata/annotations","value":{"a":"\u0078\u003c\u00e9"}}`,
	} {
		add("patch", "a test of a text "+name, func(s *session) {
			s.create("a", "metadata.annotations", map[string]any{"a": "x<é"})
			s.do("PATCH", s.flunder("a"), "["+operation+"]", contentType(jsonPatch))
		})
	}
	for _, validation := range []string{"Strict", "Ignore"} {
		add("patch", "what takes the version away, with fieldValidation="+validation, func(s *session) {
			s.create("a")
			s.do("PATCH", s.flunder("a")+"?fieldValidation="+validation, `{"apiVersion":null}`, contentType(merge))
		})
	}
	patch("JSON of 10,001 operations", jsonPatch, "["+strings.TrimSuffix(strings.Repeat(`{"op":"test","path":"/spec/reference","value":"x"},`, 10_001), ",")+"]")
	for _, media := range []string{"application/json", "text/plain", "", "application/yaml", "application/merge-patch+json; charset=utf-8", "APPLICATION/MERGE-PATCH+JSON"} {
		patch("a Content-Type of "+media, media, `{"spec":{"reference":"y"}}`)
	}
	for _, options := range []string{"dryRun=All", "dryRun=Some", "fieldValidation=Strict", "fieldValidation=Warn", "fieldValidation=Ignore", "fieldValidation=Other", "fieldManager=me", "force=true", "force=false", "force=abc"} {
		add("patch", "with "+options, func(s *session) {
			a := s.create("a")
			s.do("PATCH", s.flunder("a")+"?"+options, `{"spec":{"reference":"y","unknown":1,"unknown":2}}`, contentType(merge))
			s.do("PATCH", s.flunder("a")+"?"+options, `[{"op":"add","path":"/spec/unknown","value":5},{"op":"add","path":"/spec/reference","value":"z","why":"x"}]`, contentType(jsonPatch))
			after := s.do("GET", s.flunder("a"), nil, quiet)
			s.say("a new version: %t", after.rv() != a.rv())
		})
	}
	add("patch", "what is not there", func(s *session) {
		s.do("PATCH", s.flunder("none"), `{"spec":{"reference":"y"}}`, contentType(merge))
		s.do("PATCH", s.flunder("none"), `[]`, contentType(jsonPatch))
		s.do("PATCH", s.flunder("none"), `{"metadata":{"uid":"x"}}`, contentType(merge))
	})
	add("patch", "the last finalizer", func(s *session) {
		s.create("a", "metadata.finalizers", []string{"example.com/x"})
		s.setup("DELETE", s.flunder("a"), nil)
		s.do("PATCH", s.flunder("a"), `{"metadata":{"finalizers":[]}}`, contentType(merge))
		s.do("GET", s.flunder("a"), nil)
	})
	add("patch", "answered in other forms", func(s *session) {
		s.create("a")
		s.do("PATCH", s.flunder("a"), `{"metadata":{"labels":{"l":"1"}}}`, contentType(merge), accept(asPartial))
		s.do("PATCH", s.flunder("a"), `{"metadata":{"labels":{"l":"2"}}}`, contentType(merge), accept(asTable))
		s.do("PATCH", s.flunder("a"), `{"metadata":{"labels":{"l":"3"}}}`, contentType(merge), accept("application/yaml"))
	})
	add("patch", "owner references with uid and version, as the garbage collector does", func(s *session) {
		a := s.create("a", "metadata.ownerReferences", []any{map[string]any{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}})
		good := fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q,"ownerReferences":[]}}`, a.uid(), a.rv())
		s.do("PATCH", s.flunder("a"), `{"metadata":{"uid":"other","ownerReferences":[]}}`, contentType(merge))
		s.do("PATCH", s.flunder("a"), good, contentType(merge), hidden)
		s.do("PATCH", s.flunder("a"), good, contentType(merge), hidden)
	})
}
