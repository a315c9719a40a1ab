package main

import "strings"

const (
	apply     = "application/apply-patch+yaml"
	strategic = "application/strategic-merge-patch+json"
)

// Server-side apply, strategic merge patches, and what managedFields say after any write.
func init() {
	track := func(area, name string, ask func(*session)) {
		add(area, name, func(s *session) {
			s.full = true
			ask(s)
		})
	}
	hidden := func(r *request) { r.unshownBody = true }
	// put replaces the object at the version that it has.
	put := func(s *session, query string, more ...any) {
		current := s.do("GET", s.flunder("a"), nil, quiet)
		s.do("PUT", s.flunder("a")+query, object("a", append(more, "metadata.resourceVersion", current.rv())...), hidden)
	}
	// by applies a configuration.
	by := func(s *session, query string, body any) *answer {
		return s.do("PATCH", s.flunder("a")+"?"+query, body, contentType(apply))
	}
	get := func(s *session) *answer { return s.do("GET", s.flunder("a"), nil) }

	track("apply", "creates, and then nothing", func(s *session) {
		first := by(s, "fieldManager=me", object("a", "spec.reference", "x"))
		again := by(s, "fieldManager=me", object("a", "spec.reference", "x"))
		s.say("the version stayed: %v", first.rv() == again.rv())
	})
	track("apply", "another manager with the same values", func(s *session) {
		by(s, "fieldManager=me", object("a", "spec.reference", "x"))
		by(s, "fieldManager=you", object("a", "spec.reference", "x"))
		by(s, "fieldManager=you", object("a", "spec.reference", "x", "metadata.labels", map[string]any{"l": "1"}))
	})
	track("apply", "conflicts, and force", func(s *session) {
		s.unordered = true
		by(s, "fieldManager=me", object("a", "spec.reference", "x", "metadata.labels", map[string]any{"l": "1"}))
		by(s, "fieldManager=you", object("a", "spec.reference", "y"))
		by(s, "fieldManager=you", object("a", "spec.reference", "y", "metadata.labels", map[string]any{"l": "2"}))
		by(s, "fieldManager=you&force=true", object("a", "spec.reference", "y", "metadata.labels", map[string]any{"l": "2"}))
		by(s, "fieldManager=me&force=true", object("a", "spec.reference", "x"))
	})
	track("apply", "a conflict with an update", func(s *session) {
		s.setup("POST", s.flunders(), object("a", "spec.reference", "x"))
		by(s, "fieldManager=me", object("a", "spec.reference", "y"))
	})
	track("apply", "dropped fields", func(s *session) {
		by(s, "fieldManager=me", object("a", "spec.reference", "x", "metadata.labels", map[string]any{"l": "1", "m": "2"},
			"metadata.finalizers", []any{"example.com/f", "example.com/g"}))
		by(s, "fieldManager=you", object("a", "metadata.labels", map[string]any{"l": "1"}, "metadata.finalizers", []any{"example.com/g"}))
		by(s, "fieldManager=me", object("a"))
		by(s, "fieldManager=you", object("a"))
		s.do("PATCH", s.flunder("a"), `{"metadata":{"finalizers":null}}`, contentType(merge), quiet)
	})
	track("apply", "owner references", func(s *session) {
		owner := func(uid, name string) map[string]any {
			return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}
		}
		by(s, "fieldManager=me", object("a", "metadata.ownerReferences", []any{owner("1", "x")}))
		by(s, "fieldManager=you", object("a", "metadata.ownerReferences", []any{owner("2", "y")}))
		by(s, "fieldManager=you", object("a", "metadata.ownerReferences", []any{owner("1", "z")}))
		by(s, "fieldManager=you", object("a", "metadata.ownerReferences", []any{owner("1", "x"), owner("1", "x")}))
	})
	for _, query := range []string{"", "fieldManager=", "fieldManager=me&force=no", "fieldManager=me&dryRun=All", "fieldManager=me&dryRun=x",
		"fieldManager=me&fieldValidation=Strict", "fieldManager=me&fieldValidation=x", "fieldManager=" + strings.Repeat("m", 129), "fieldManager=a%0Ab"} {
		track("apply", "with "+query, func(s *session) {
			by(s, query, object("a", "spec.reference", "x"))
			get(s)
		})
	}
	for name, body := range map[string]any{
		"managedFields": object("a", "metadata.managedFields", []any{}), "null managedFields": object("a", "metadata.managedFields", nil),
		"another kind": object("a", "kind", "Fischer"), "no kind": object("a", "kind", nil), "no apiVersion": object("a", "apiVersion", nil),
		"another version": object("a", "apiVersion", "wardle.example.com/v9"), "a malformed version": object("a", "apiVersion", "a/b/c"),
		"another name": object("b"), "no name": object("a", "metadata.name", nil), "another namespace": object("a", "metadata.namespace", "default"),
		"a uid": object("a", "metadata.uid", "u"), "a resourceVersion": object("a", "metadata.resourceVersion", "5"),
		"an unknown field": object("a", "spec.unknown", 1), "a wrong type": object("a", "spec.reference", 1), "a wrong object": object("a", "spec.reference", map[string]any{"x": 1}),
		"a wrong map": object("a", "spec", "x"), "labels that are no text": object("a", "metadata.labels", map[string]any{"l": 1}),
		"finalizers twice":  object("a", "metadata.finalizers", []any{"example.com/f", "example.com/f"}),
		"an invalid object": object("a", "spec.referenceType", "Fischer"), "a status": object("a", "status", map[string]any{}),
		"null": "null", "nothing": "", "a number": "5", "a list": "[]", "a text": "x",
		"a duplicate":    "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: a}\nspec:\n  reference: x\n  reference: y\n",
		"nothing at all": "{}", "system fields": object("a", "metadata.creationTimestamp", "2001-01-01T00:00:00Z", "metadata.generation", 5),
		"a generateName": object("a", "metadata.generateName", "a-"), "null fields": object("a", "spec.reference", nil),
		"empty maps": object("a", "spec", map[string]any{}, "metadata.labels", map[string]any{}),
	} {
		track("apply", name, func(s *session) {
			by(s, "fieldManager=me", body)
			get(s)
		})
		track("apply", name+", over an object", func(s *session) {
			s.setup("POST", s.flunders(), object("a", "spec.reference", "x"))
			by(s, "fieldManager=me&force=true", body)
			get(s)
		})
	}
	for _, body := range []string{`"x`, "@x: 1", "`x`", "%", "a: |x\n b", "a: b: c", "a: b\n c: d", "a: 'b", "a: !!bool x"} {
		track("apply", "malformed YAML "+strings.ReplaceAll(body, "\n", "⏎"), func(s *session) { by(s, "fieldManager=me", body) })
	}
	track("apply", "a duplicate, strictly", func(s *session) {
		by(s, "fieldManager=me&fieldValidation=Strict", "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: a}\nspec:\n  reference: x\n  reference: y\n")
	})
	track("apply", "the current version, and then a stale one", func(s *session) {
		created := s.setup("POST", s.flunders(), object("a"))
		for _, more := range [][]any{{"metadata.resourceVersion", created.rv()}, {"metadata.resourceVersion", created.rv()}, {"metadata.uid", created.uid()}} {
			body := object("a", append(more, "spec.reference", "x")...)
			s.do("PATCH", s.flunder("a")+"?fieldManager=me", body, contentType(apply), hidden)
		}
		by(s, "fieldManager=me", object("a", "spec.reference", "z", "metadata.uid", "u"))
	})
	track("apply", "answered in other forms", func(s *session) {
		for _, form := range []string{asPartial, asTable, "application/yaml", "application/cbor"} {
			s.do("PATCH", s.flunder("a")+"?fieldManager=me", object("a"), contentType(apply), accept(form))
		}
	})
	for name, more := range map[string][]any{
		"an owner without a uid":          {"metadata.ownerReferences", []any{map[string]any{"apiVersion": "v1", "kind": "K", "name": "n"}}},
		"two owners without a uid":        {"metadata.ownerReferences", []any{map[string]any{"name": "n"}, map[string]any{"name": "o"}}},
		"a time that is none":             {"metadata.creationTimestamp", "2020-01-02"},
		"a generation that is a fraction": {"metadata.generation", 1.5},
		"a version that is none":          {"metadata.resourceVersion", "abc"},
		"a uid and no name":               {"metadata.name", nil, "metadata.uid", "u"},
		"managedFields that are a text":   {"metadata.managedFields", "x"},
		"managedFields of nothing":        {"metadata.managedFields", []any{nil}},
	} {
		track("apply", name, func(s *session) { by(s, "fieldManager=me", object("a", more...)) })
	}
	track("apply", "to what is being deleted", func(s *session) {
		s.setup("POST", s.flunders(), object("a", "metadata.finalizers", []any{"example.com/f"}))
		s.setup("DELETE", s.flunder("a"), nil)
		by(s, "fieldManager=me", object("a", "spec.reference", "y"))
		by(s, "fieldManager=me", object("a", "metadata.finalizers", []any{"example.com/g"}))
		s.do("PATCH", s.flunder("a"), `{"metadata":{"finalizers":null}}`, contentType(merge), quiet)
	})
	track("apply", "in a namespace that is not there", func(s *session) {
		s.do("PATCH", root+"/namespaces/nowhere/flunders/a?fieldManager=me", object("a"), contentType(apply))
	})
	track("apply", "as somebody who may not", func(s *session) {
		s.do("PATCH", s.flunder("a")+"?fieldManager=me", object("a"), contentType(apply), as("nobody"))
	})
	track("apply", "what client-side apply set", func(s *session) {
		last := map[string]any{"kubectl.kubernetes.io/last-applied-configuration": `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"a"},"spec":{"reference":"x"}}`}
		s.setup("POST", s.flunders()+"?fieldManager=kubectl-client-side-apply", object("a", "spec.reference", "x", "metadata.annotations", last))
		by(s, "fieldManager=me", object("a", "spec.reference", "y"))
		by(s, "fieldManager=kubectl", object("a", "spec.reference", "y", "metadata.labels", map[string]any{"l": "<&>"}))
	})

	track("managed fields", "of creates and updates", func(s *session) {
		s.do("POST", s.flunders(), object("a", "spec.reference", "x", "metadata.labels", map[string]any{"l": "1"},
			"metadata.annotations", map[string]any{"n": "1"}, "metadata.generateName", "a-"))
		put(s, "?fieldManager=p", "spec.reference", "y")
		put(s, "?fieldManager=q", "spec.reference", "y")
		s.do("PATCH", s.flunder("a")+"?fieldManager=r", `{"metadata":{"labels":{"l":"2"}}}`, contentType(merge))
		s.do("PATCH", s.flunder("a")+"?fieldManager=s", `[{"op":"add","path":"/metadata/labels/m","value":"3"}]`, contentType(jsonPatch))
		s.do("PATCH", s.flunder("a")+"?fieldManager=t", `{"metadata":{"labels":{"m":null}}}`, contentType(strategic))
	})
	track("managed fields", "of the time of a deletion", func(s *session) {
		s.setup("POST", s.flunders(), object("a", "metadata.finalizers", []any{"example.com/f"}))
		s.setup("DELETE", s.flunder("a"), nil)
		s.do("PATCH", s.flunder("a")+"?fieldManager=r", `{"metadata":{"deletionTimestamp":"2001-01-01T00:00:00Z"}}`, contentType(merge))
		s.do("PATCH", s.flunder("a")+"?fieldManager=s", `{"metadata":{"deletionTimestamp":null}}`, contentType(merge))
		s.do("PATCH", s.flunder("a"), `{"metadata":{"finalizers":null}}`, contentType(merge), quiet)
	})
	for name, body := range map[string]any{
		"an empty list": []any{}, "an empty entry": []any{map[string]any{}}, "null": nil,
		"nonsense":        []any{map[string]any{"manager": "x", "operation": "Other"}},
		"another manager": []any{map[string]any{"manager": "x", "operation": "Apply", "apiVersion": groupVersion, "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:spec": map[string]any{"f:reference": map[string]any{}}}}},
		"another version": []any{map[string]any{"manager": "x", "operation": "Update", "apiVersion": "v9", "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:spec": map[string]any{"f:reference": map[string]any{}}}}},
		"broken fields":   []any{map[string]any{"manager": "x", "operation": "Update", "apiVersion": groupVersion, "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"x": map[string]any{}}}},
		"a long manager":  []any{map[string]any{"manager": strings.Repeat("x", 129), "operation": "Update", "apiVersion": groupVersion, "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:spec": map[string]any{"f:reference": map[string]any{}}}}},
		"two lines":       []any{map[string]any{"manager": "a\nb", "operation": "Update", "apiVersion": groupVersion, "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:spec": map[string]any{"f:reference": map[string]any{}}}}},
		"no map":          []any{map[string]any{"manager": "x", "operation": "Update", "apiVersion": groupVersion, "fieldsType": "FieldsV1", "fieldsV1": 1}},
		"no fields":       []any{map[string]any{"manager": "x", "operation": "Update", "apiVersion": groupVersion, "fieldsType": "FieldsV1"}},
	} {
		track("managed fields", name+" in a create", func(s *session) {
			s.do("POST", s.flunders(), object("a", "spec.reference", "x", "metadata.managedFields", body))
		})
		track("managed fields", name+" in an update", func(s *session) {
			s.setup("POST", s.flunders(), object("a", "spec.reference", "x"))
			put(s, "?fieldManager=p", "spec.reference", "y", "metadata.managedFields", body)
			s.do("PATCH", s.flunder("a")+"?fieldManager=q", `{"spec":{"reference":"z"}}`, contentType(merge))
			by(s, "fieldManager=me", object("a", "metadata.labels", map[string]any{"l": "1"}))
		})
	}

	for _, body := range []string{
		`{"spec":{"reference":"y"}}`, `{"spec":{"referenceType":null}}`, `{"spec":null}`, `{"spec":{"$patch":"replace","reference":"y"}}`,
		`{"spec":{"$patch":"delete"}}`, `{"spec":{"$patch":"merge"}}`, `{"spec":{"$retainKeys":["reference"]}}`, `{"spec":{"$retainKeys":5}}`,
		`{"metadata":{"finalizers":["example.com/g"]}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/f"]}}`,
		`{"metadata":{"finalizers":["example.com/g"],"$setElementOrder/finalizers":["example.com/g","example.com/f"]}}`,
		`{"metadata":{"$setElementOrder/finalizers":["example.com/g"]}}`, `{"metadata":{"$setElementOrder/finalizers":5}}`, `{"metadata":{"$setElementOrder":[]}}`,
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"2"}]}}`, `{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"1"}]}}`,
		`{"metadata":{"ownerReferences":[{"$patch":"replace"},{"apiVersion":"v1","kind":"K","name":"n","uid":"3"}]}}`, `{"metadata":{"ownerReferences":[{"name":"n"}]}}`,
		`{"metadata":{"labels":{"l":"2","m":null}}}`, `{"unknown":1}`, `{"spec":{"unknown":1}}`, `{"spec":{"reference":1}}`, `{"spec":{"reference":[]}}`, `{"spec":{"reference":{}}}`, `{"spec":{"reference":true}}`, `{"metadata":{"labels":5}}`, `{"metadata":{"finalizers":"x"}}`, `{"metadata":{"generation":"x"}}`, `{"spec":{"reference":"y","reference":"z"}}`,
		`{"metadata":{"labels":{"a":"1"},"labels":{"b":"2"}}}`, `{"metadata":{"finalizers":[null]}}`, `{"metadata":{"$patch":1}}`,
		`{"metadata":{"finalizers":["example.com/g"],"$setElementOrder/finalizers":["example.com/h","example.com/f"]}}`, `{"spec":[]}`,
		`null`, `5`, `[]`, `{"a":`, ``, `{"metadata":{"name":"b"}}`, `{"metadata":{"uid":"u"}}`, `{"metadata":{"resourceVersion":"1"}}`, `{"kind":"Other"}`,
		`{"kind":5}`, `{"kind":null}`, `{"apiVersion":[]}`, `{"apiVersion":"v1","kind":true}`,
		`{"metadata":{"generation":1.0}}`, `{"metadata":{"generation":1e2}}`, `{"metadata":{"generation":1.5}}`, `{"metadata":{"uid":1}}`,
	} {
		track("strategic patch", body, func(s *session) {
			owner := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}
			s.setup("POST", s.flunders(), object("a", "spec.reference", "x", "metadata.labels", map[string]any{"l": "1", "m": "1"},
				"metadata.finalizers", []any{"example.com/f"}, "metadata.ownerReferences", []any{owner}))
			s.do("PATCH", s.flunder("a"), body, contentType(strategic))
			s.do("PATCH", s.flunder("a")+"?fieldValidation=Strict", body, contentType(strategic))
			s.do("PATCH", s.flunder("a"), `{"metadata":{"finalizers":null}}`, contentType(merge), quiet)
		})
	}
	track("strategic patch", "what is not there", func(s *session) {
		s.do("PATCH", s.flunder("a"), `{}`, contentType(strategic))
	})
}
