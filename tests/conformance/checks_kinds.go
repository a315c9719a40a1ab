package main

import (
	"net/url"
	"slices"
	"strings"
)

// ofStoa is the area of Stoa's own kinds.
const ofStoa = "kinds of Stoa"

// askStoa adds a check about one of Stoa's kinds. Through kube-apiserver, which only passes on what is asked, workspaces stand for all.
func askStoa(k kind, name string, ask func(*collection)) {
	mode := direct
	if k.plural == "workspaces" {
		mode = ""
	}
	checks = append(checks, &check{area: ofStoa, name: k.plural + ", " + name, stoa: true, mode: mode, ask: func(s *session) {
		c := &collection{s, k}
		defer c.clean()
		if c.subject && k.before != nil {
			k.before(c)
		}
		ask(c)
	}})
}

// What stoa-apiserver makes of its own kinds, where a custom resource is no other than a typed kind: what is told of objects of
// another kind, of forms that there are not, and of some fields that may not change is compared with the sample-apiserver's.
func init() {
	for _, k := range kinds {
		ask := func(name string, asked func(*collection)) { askStoa(k, name, asked) }
		askReads(k, ask)
		if k.spec == nil {
			continue
		}
		askRefusals(ask)
		if k.dry {
			continue
		}
		askWrites(k, ask)
		if !k.unchanging && !k.statusless {
			askStatus(ask)
		}
		if k.strategic != nil {
			ask("patched strategically", askStrategic)
		}
		if !k.written {
			askWatches(ask)
		}
		if !k.written || k.unchanging {
			askDeletes(ask)
		}
	}
}

var hiddenBody = func(r *request) { r.unshownBody = true }

// askReads has reads of what is there, if anything is made, and of what is not.
func askReads(k kind, ask func(string, func(*collection))) {
	isMade := k.spec != nil && !k.dry
	ask("read", func(c *collection) {
		if isMade {
			c.make("a")
			c.settle("a")
			for _, form := range []string{"application/json", "application/yaml"} {
				c.do("GET", c.one("a"), nil, accept(form))
				c.do("GET", c.own(""), nil, accept(form))
			}
			c.do("GET", c.one("a"), nil, accept(asPartial))
			c.do("GET", c.own(""), nil, accept(asPartialList))
		}
		c.do("GET", c.one("none"), nil)
		c.do("GET", c.own("&fieldSelector=metadata.name%3D"+c.name("a")), nil)
		queries := []string{
			"fieldSelector=metadata.name%3Dnone", "labelSelector=%3D", "limit=x", "continue=abc", "resourceVersion=x", "resourceVersionMatch=Exact",
			"resourceVersion=0&resourceVersionMatch=Exact", "sendInitialEvents=true",
		}
		if k.plural == "workspaces" {
			// Of versions that are to come, which are waited for, one kind is enough.
			queries = append(queries, "resourceVersion=9999999", "resourceVersion=9999999&resourceVersionMatch=Exact")
		}
		for _, query := range queries {
			c.do("GET", c.all()+"?"+query, nil)
		}
	})
	ask("discovered", func(c *collection) {
		list := c.do("GET", "/apis/"+c.apiVersion(), nil, quiet)
		resources, _ := list.at("resources").([]any)
		for _, resource := range resources {
			r, _ := resource.(map[string]any)
			if name := r["name"]; name == k.plural || name == k.plural+"/status" {
				verbs, _ := r["verbs"].([]any)
				slices.SortFunc(verbs, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
				c.say("%v, %v, %v, namespaced %v: %v", name, r["singularName"], r["kind"], r["namespaced"], verbs)
			}
		}
	})
	ask("selected by fields", func(c *collection) {
		if isMade {
			c.make("a")
		}
		for _, field := range append(k.selectable, "spec.none", "metadata.labels") {
			for _, value := range []string{"", "x"} {
				c.do("GET", c.own("&fieldSelector="+url.QueryEscape(field+"="+value)), nil)
				c.do("GET", c.own("&fieldSelector="+url.QueryEscape(field+"!="+value+",metadata.name="+c.name("a"))), nil)
			}
		}
	})
	ask("told of as a table", func(c *collection) {
		if isMade {
			c.make("a")
			c.table(c.one("a"))
		}
		c.table(c.own(""))
	})
	if !isMade {
		ask("that are not there", func(c *collection) {
			c.do("PATCH", c.one("none"), `{}`, contentType(merge))
			c.do("DELETE", c.one("none"), nil)
			c.do("DELETE", c.own(""), nil)
			c.watch(c.own("&watch=true&timeoutSeconds=1"), nil, nil)
		})
		return
	}
	ask("in pages", func(c *collection) {
		for _, name := range []string{"a", "b", "c"} {
			c.make(name)
		}
		first := c.do("GET", c.own("&limit=2"), nil)
		token := first.text("metadata", "continue")
		c.make("d")
		second := c.do("GET", c.own("&limit=2&continue="+url.QueryEscape(token)), nil, unshownQuery(token))
		c.say("the same version: %t", first.rv() == second.rv())
		c.do("GET", c.own("&limit=2&resourceVersion=1&continue="+url.QueryEscape(token)), nil, unshownQuery(token))
	})
	ask("at versions", func(c *collection) {
		c.make("a")
		list := c.do("GET", c.own(""), nil, quiet)
		c.make("b")
		c.setup("DELETE", c.one("a"), nil)
		c.gone("a")
		c.do("GET", c.own("&resourceVersionMatch=Exact&resourceVersion="+list.rv()), nil, unshownQuery(list.rv()))
		if !k.written {
			c.do("GET", c.own("&resourceVersionMatch=NotOlderThan&resourceVersion="+list.rv()), nil, unshownQuery(list.rv()))
			c.do("GET", c.own("&resourceVersion=0"), nil)
		}
	})
	ask("as who may not", func(c *collection) {
		c.make("a")
		c.do("GET", c.one("a"), nil, as("nobody"))
		c.do("GET", c.own(""), nil, as("nobody"))
		c.do("GET", c.own("&watch=true"), nil, as("nobody"))
		c.do("POST", c.all(), c.object("b"), as("nobody"))
		c.do("PATCH", c.one("a"), `{}`, contentType(merge), as("nobody"))
		c.do("DELETE", c.one("a"), nil, as("nobody"))
		c.do("DELETE", c.own(""), nil, as("nobody"))
	})
}

// askRefusals has creates that are refused, or warned of.
func askRefusals(ask func(string, func(*collection))) {
	ask("refused", func(c *collection) {
		for _, more := range [][]any{
			{"metadata.name", nil}, {"metadata.name", "UPPER"}, {"metadata.name", "a_b"}, {"metadata.namespace", "default"}, {"metadata.labels", map[string]any{"bad key!": "x"}},
			{"metadata.ownerReferences", []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}}},
			{"spec", nil}, {"spec.unknown", 1},
		} {
			for _, query := range []string{"?dryRun=All", "?dryRun=All&fieldValidation=Strict", "?dryRun=All&fieldValidation=Ignore"} {
				c.do("POST", c.all()+query, c.object("a", more...))
			}
		}
		c.do("POST", c.all(), `{`)
		c.do("POST", c.all(), c.object("a"), contentType("application/cbor"))
	})
}

// askWrites has creates, updates, patches and applies.
func askWrites(k kind, ask func(string, func(*collection))) {
	ask("created", func(c *collection) {
		c.do("POST", c.all(), c.object("a", c.changed(0)...))
		c.do("POST", c.all(), c.object("a"))
		c.do("POST", c.all()+"?dryRun=All", c.object("b"))
		c.do("GET", c.one("b"), nil)
		c.do("POST", c.all()+"?dryRun=All", c.object("", "metadata.name", nil, "metadata.generateName", "generated-"))
		c.do("GET", c.one("a"), nil)
	})
	ask("updated", func(c *collection) {
		old := c.make("a").rv()
		put := func(version string, more ...any) {
			before := c.settle("a").rv()
			if version == "" {
				version = before
			}
			a := c.do("PUT", c.one("a"), c.object("a", append(more, "metadata.resourceVersion", version)...), hiddenBody)
			c.say("another version: %t", a.rv() != before)
		}
		put("", c.changed(0)...)
		put("", c.changed(0)...)
		put("", c.changed(1)...)
		put(old, c.changed(1)...)
		put("", "metadata.uid", "other")
		put("", "metadata.name", c.name("b"))
		put("abc")
		put("", "spec.unknown", 1)
		c.do("PUT", c.one("none"), c.object("none", "metadata.resourceVersion", "5"))
		c.do("PUT", c.one("a")+"?dryRun=All", c.object("a", append(c.changed(2), "metadata.resourceVersion", c.settle("a").rv())...), hiddenBody)
		c.do("GET", c.one("a"), nil)
	})
	ask("patched", func(c *collection) {
		a := c.make("a")
		path, null := "/spec/"+k.field, map[string]any{"spec": map[string]any{k.field: nil}}
		for _, patch := range []any{
			c.changing(0), c.changing(0), null, `{"metadata":{"labels":{"l":"1"}}}`, `{"metadata":{"labels":{"l":null}}}`,
			with(c.changing(1), "metadata.resourceVersion", "1"), `{"metadata":{"name":"other"}}`, `{"spec":{"unknown":1}}`, `{}`, `[]`, `{`,
		} {
			c.do("PATCH", c.one("a"), patch, contentType(merge))
		}
		op := func(op string, number int) map[string]any {
			return map[string]any{"op": op, "path": path, "value": k.values[number]}
		}
		for _, patch := range []any{
			[]any{op("add", 0)}, []any{op("test", 1)}, `[{"op":"remove","path":"/spec/none"}]`, []any{op("replace", 1), op("test", 1)}, `[]`, `{}`, `[{"op":"other","path":"/spec"}]`,
		} {
			c.do("PATCH", c.one("a"), patch, contentType(jsonPatch))
		}
		c.do("PATCH", c.one("none"), `{}`, contentType(merge))
		c.say("another version: %t", c.do("GET", c.one("a"), nil).rv() != a.rv())
	})
	ask("applied", func(c *collection) {
		by := func(query string, more ...any) {
			c.do("PATCH", c.one("a")+"?"+query, c.object("a", more...), contentType(apply))
		}
		by("fieldManager=me", c.changed(0)...)
		by("fieldManager=me", c.changed(0)...)
		by("fieldManager=you", c.changed(1)...)
		by("fieldManager=you&force=true", c.changed(1)...)
		by("fieldManager=me", "metadata.annotations", map[string]any{"n": "1"})
		by("fieldManager=you")
		by("", c.changed(2)...)
		by("fieldManager=me&dryRun=All", c.changed(2)...)
		by("fieldManager=me", "spec.unknown", 1)
		by("fieldManager=me", "metadata.resourceVersion", "1")
		c.do("GET", c.one("a"), nil)
	})
	ask("deleted", func(c *collection) {
		a := c.make("a")
		preconditions := func(field, value string) map[string]any {
			return map[string]any{"preconditions": map[string]any{field: value}}
		}
		c.settle("a")
		c.do("DELETE", c.one("a")+"?dryRun=All", nil)
		c.do("DELETE", c.one("a"), preconditions("uid", "other"))
		c.do("DELETE", c.one("a"), preconditions("resourceVersion", "1"))
		c.do("DELETE", c.one("a")+"?propagationPolicy=Other", nil)
		c.do("DELETE", c.one("a"), preconditions("uid", a.uid()), hiddenBody)
		c.gone("a")
		c.do("DELETE", c.one("a"), nil)
		if k.metadata["finalizers"] != nil {
			return
		}
		c.do("POST", c.all(), c.object("b", "metadata.finalizers", []any{"example.com/f"}))
		c.do("DELETE", c.one("b"), nil)
		c.do("DELETE", c.one("b"), nil)
		c.do("PATCH", c.one("b"), `{"metadata":{"finalizers":null}}`, contentType(merge))
		c.do("GET", c.one("b"), nil)
	})
}

// askStatus has writes of the status, each of the whole of it: controllers may write in between.
func askStatus(ask func(string, func(*collection))) {
	condition := func(more ...any) map[string]any {
		return with(fields{"type": "Asked", "status": "True", "reason": "Asked", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}, more...)
	}
	whole := func(conditions ...any) []any {
		return []any{fields{"op": "add", "path": "/status", "value": fields{"conditions": conditions}}}
	}
	ask("status written", func(c *collection) {
		c.withStatus = true
		c.make("a")
		c.settle("a")
		patch := func(patch any, query string) {
			c.do("PATCH", c.one("a")+"/status"+query, patch, contentType(jsonPatch))
		}
		patch(whole(condition()), "?fieldManager=m")
		patch(whole(), "?fieldManager=m")
		patch(append(whole(condition()), fields{"op": "add", "path": "/spec/description", "value": "other"}), "?fieldManager=m")
		patch(whole(condition("unknown", 1)), "?fieldManager=m")
		patch(whole(condition("unknown", 1)), "?fieldManager=m&fieldValidation=Strict")
		patch(whole(condition(), condition()), "?fieldManager=m")
		patch([]any{fields{"op": "add", "path": "/status/unknown", "value": 1}}, "?fieldManager=m&dryRun=All&fieldValidation=Strict")
		patch([]any{fields{"op": "test", "path": "/status", "value": 1}}, "?fieldManager=m")
		for _, name := range []string{"type", "status", "reason", "message", "lastTransitionTime"} {
			patch(whole(condition(name, nil)), "?fieldManager=m&dryRun=All")
		}
		c.do("PATCH", c.one("none")+"/status", `{}`, contentType(merge))
	})
	ask("status of other types", func(c *collection) {
		c.make("a")
		for _, value := range []any{"text", 1, []any{}, fields{"conditions": "text"}, fields{"conditions": fields{}}, fields{"conditions": []any{"text"}}, fields{"conditions": []any{condition("status", 1)}}} {
			a := c.do("PATCH", c.one("a")+"/status?dryRun=All", []any{fields{"op": "add", "path": "/status", "value": value}}, contentType(jsonPatch), quiet)
			// A typed kind does not decode then; a custom resource is not valid.
			c.say("%s: refused %t", encode(value), a.code == 400 || a.code == 422)
		}
	})
	ask("status applied by two", func(c *collection) {
		c.withStatus = true
		c.make("a")
		by := func(query string, conditions ...any) {
			o := c.object("a", "spec", nil, "metadata", fields{"name": c.name("a")}, "status.conditions", conditions)
			a := c.do("PATCH", c.one("a")+"/status?fieldManager="+query, o, contentType(apply), quiet)
			c.say("%s: %d %s", query, a.code, a.text("message"))
			// Those of controllers are not ours to tell.
			all, _ := a.at("status", "conditions").([]any)
			for _, one := range all {
				if o, _ := one.(map[string]any); strings.HasPrefix(o["type"].(string), "Asked") {
					c.say("  %s", encode(o))
				}
			}
		}
		by("me", condition())
		by("you", condition("type", "AskedToo"))
		by("you", condition("status", "False"))
		by("you&force=true", condition("status", "False"))
		by("me")
		by("me", condition(), condition())
		by("me", condition("type", nil))
	})
}

// askStrategic has strategic merge patches, of which custom resources have none: the reference is told in another way what comes of them.
func askStrategic(c *collection) {
	c.setup("POST", c.all(), c.wholeOf(0))
	for _, p := range c.kind.strategic {
		if !c.subject {
			c.do("PATCH", c.one("a"), p.like, contentType(jsonPatch), quiet)
		} else if a := c.do("PATCH", c.one("a"), p.patch, contentType(strategic), quiet); a.code > 299 {
			c.say("%s: %d %s", p.patch, a.code, a.text("message"))
		}
		c.say("after %s", p.patch)
		c.do("GET", c.one("a"), nil)
	}
}

func askDeletes(ask func(string, func(*collection))) {
	ask("deleted together", func(c *collection) {
		c.make("a")
		c.make("b")
		c.do("DELETE", c.own("&dryRun=All"), nil)
		c.do("DELETE", c.own("&fieldSelector=metadata.name%3D"+c.name("a")), nil)
		c.gone("a")
		c.do("GET", c.own(""), nil)
		c.do("DELETE", c.own(""), nil)
		c.gone("b")
		c.do("DELETE", c.own(""), nil)
	})
}

func askWatches(ask func(string, func(*collection))) {
	for name, options := range map[string][]option{"": nil, " as metadata": {accept(asPartial)}} {
		ask("watched"+name, func(c *collection) {
			list := c.do("GET", c.own(""), nil, quiet)
			c.make("a")
			c.make("b")
			c.setup("PATCH", c.one("a"), c.changing(0), contentType(merge))
			c.setup("PATCH", c.one("a"), `{"metadata":{"labels":{"check":"other"}}}`, contentType(merge))
			// What has finalizers first becomes what is being deleted.
			enough := after(5)
			if c.kind.metadata["finalizers"] != nil {
				enough = after(6)
			}
			c.setup("DELETE", c.one("b"), nil)
			c.gone("b")
			c.watch(c.own("&watch=true&timeoutSeconds=20&resourceVersion="+list.rv()), nil, enough, append(options, unshownQuery(list.rv()))...)
			c.watch(c.own("&watch=true&timeoutSeconds=20&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"), func() {
				c.setup("PATCH", c.one("a"), map[string]any{"metadata": map[string]any{"labels": c.labels()}}, contentType(merge))
			}, after(2), options...)
		})
	}
}

// table reads one, and tells of the columns that the kind says.
func (c *collection) table(path string) {
	a := c.do("GET", path, nil, accept(asTable), quiet)
	definitions, _ := a.at("columnDefinitions").([]any)
	shown := map[int]bool{}
	for i, definition := range definitions {
		d, _ := definition.(map[string]any)
		for _, column := range append(c.kind.columns, column{name: "Name"}) {
			if d["name"] == column.name {
				shown[i] = true
				c.say("column %v: %v, format %v, priority %v", d["name"], d["type"], d["format"], d["priority"])
			}
		}
	}
	c.say("%d %s", a.code, a.header.Get("Content-Type"))
	rows, _ := a.at("rows").([]any)
	for _, row := range rows {
		r, _ := row.(map[string]any)
		var cells []any
		all, _ := r["cells"].([]any)
		for i, cell := range all {
			if shown[i] {
				cells = append(cells, cell)
			}
		}
		r["cells"] = cells
		c.say("  %s", c.body("application/json", encode(r)))
	}
}
