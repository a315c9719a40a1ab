package main

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
)

// Conversations that nobody thought of: requests put together at random from parts that make sense, and some that do not. What
// is drawn follows from a number alone, so that both servers are asked the same, and that it can be asked again.

// conversations is how many of each kind hack/test has, from the number 1 on.
const conversations = 100

// addRandom adds conversations with the numbers from first on.
func addRandom(first, count int) {
	for number := first; number < first+count; number++ {
		roll := func() dice { return dice{rand.New(rand.NewPCG(uint64(number), 0))} }
		addDirect(random, fmt.Sprintf("reads %d", number), func(s *session) { s.randomReads(roll()) })
		addDirect(random, fmt.Sprintf("writes %d", number), func(s *session) { s.randomWrites(roll()) })
	}
}

// random is the area of these.
const random = "random"

// dice is where choices come from.
type dice struct{ *rand.Rand }

// one is one of these, each as likely as the others.
func (d dice) one(of ...string) string { return of[d.IntN(len(of))] }

// in says yes once in so many times.
func (d dice) in(times int) bool { return d.IntN(times) == 0 }

// query is a query of some of these parameters, each with one of its values. A value that is each server's own is given as
// {name}, to be found in own; in the transcript it stays so.
func (d dice) query(likely int, own map[string]string, parameters ...[]string) (query string, options []option) {
	var parts []string
	for _, parameter := range parameters {
		if !d.in(likely) {
			continue
		}
		value := d.one(parameter[1:]...)
		if theirs, ok := own[value]; ok {
			value = url.QueryEscape(theirs)
			options = append(options, func(r *request) { r.masked = append(r.masked, parameter[0]+"="+value) })
		} else {
			value = url.QueryEscape(value)
		}
		parts = append(parts, parameter[0]+"="+value)
	}
	if len(parts) > 0 {
		query = "?" + strings.Join(parts, "&")
	}
	return query, options
}

var forms = []string{
	"application/json", "*/*", "application/yaml", asTable, asPartial, asPartialList, "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
	asTable + ",application/json", "application/yaml," + asTable, "application/json;q=0.5," + asPartialList + ";q=0.9", "application/*;q=0.9," + asPartial,
	"application/json;as=Table", "application/json;as=", "application/json;v=", "text/html", "text/html,*/*;q=0.1", "application/json;stream=watch",
}

// randomReads makes a history of a few objects and reads it.
func (s *session) randomReads(d dice) {
	own := map[string]string{}
	there := map[string]bool{}
	objects := []string{"a", "b", "c", "d"}
	count := 6 + d.IntN(6)
	var versions []string
	for i := range count {
		name := d.one(objects...)
		labels := map[string]any{"app": d.one("x", "y"), d.one("tier", "zone"): d.one("1", "2", "3")}
		switch {
		case !there[name]:
			s.create(name, "metadata.labels", labels, "spec.reference", d.one("one", "two"))
			there[name] = true
		case d.in(3):
			s.setup("DELETE", s.flunder(name), nil)
			there[name] = false
		default:
			s.setup("PATCH", s.flunder(name), map[string]any{"metadata": map[string]any{"labels": labels}}, contentType(merge))
		}
		version := fmt.Sprintf("{version %d}", i)
		own[version] = s.setup("GET", s.flunders(), nil).rv()
		versions = append(versions, version)
	}
	s.create("last")
	page := s.setup("GET", s.flunders()+"?limit=1", nil)
	own["{token}"] = page.text("metadata", "continue")

	version := append([]string{"resourceVersion", "", "0", "abc", "-1"}, versions...)
	selectors := []string{
		"labelSelector", "app=x", "app!=x", "app in (x,y)", "app notin (x)", "tier", "!tier", "tier>1", "app=x,tier=1", "app=x,!zone", "", "=", "app==", "app in ()", "in", "a/b/c=d",
		"app in (x", "app=x,", ",app=x", "tier<x", "x y", "app in (x,(y))", "-=1",
	}
	fields := []string{"fieldSelector", "metadata.name=a", "metadata.name!=a", "metadata.namespace=other", "metadata.name==b,metadata.name!=a", "", "foo", "spec.x=1", "spec.x=1,foo", "metadata.name"}
	for range 12 {
		list := d.IntN(4) > 0
		isWatch := list && d.in(4)
		parameters := [][]string{
			version, {"resourceVersionMatch", "Exact", "NotOlderThan", "", "Other"}, selectors, fields, {"limit", "1", "2", "3", "0", "-1", "x", "9223372036854775808"},
			{"continue", "{token}", "abc", ""}, {"sendInitialEvents", "true", "false", "x"}, {"allowWatchBookmarks", "true", "false", "x"},
			{"includeObject", "None", "Object", "Metadata", "other"}, {"pretty", "true", "0"}, {"timeout", "30s", "0", "x", "5sx"},
		}
		query, options := d.query(5, own, parameters...)
		if d.in(2) {
			form := d.one(forms...)
			// Watches of lists, and bookmarks in tables, are among the differences that are permitted.
			if !isWatch || !strings.Contains(form, "PartialObjectMetadataList") && !strings.Contains(form, "Table") {
				options = append(options, accept(form))
			}
		}
		path := s.flunders()
		if !list {
			path = s.flunder(d.one("a", "b", "c", "last", "none"))
		}
		if !isWatch {
			s.do("GET", path+query, nil, options...)
			continue
		}
		if query == "" {
			query = "?"
		}
		s.watch(path+query+"&watch=1&timeoutSeconds=1", nil, nil, options...)
	}
}

// randomWrites changes two objects in all ways, and looks at them after each.
func (s *session) randomWrites(d dice) {
	s.full, s.unordered = true, true
	for range 10 {
		name := d.one("a", "a", "b")
		query, options := d.query(6, nil,
			[]string{"dryRun", "All", "All", "x"}, []string{"fieldManager", "m", "n", "\x01"}, []string{"force", "true", "false"},
			[]string{"fieldValidation", "Strict", "Warn", "Ignore", "x"}, []string{"propagationPolicy", "Orphan", "Foreground", "Background", "x"},
			[]string{"gracePeriodSeconds", "0", "1", "-1", "x"}, []string{"orphanDependents", "true", "false"},
		)
		o := s.randomObject(d, name)
		switch d.IntN(9) {
		case 0, 1:
			s.do("POST", s.flunders()+query, o, options...)
		case 2:
			s.do("PUT", s.flunder(name)+query, o, options...)
		case 3:
			delete(o, "apiVersion")
			delete(o, "kind")
			s.do("PATCH", s.flunder(name)+query, o, append(options, contentType(merge))...)
		case 4:
			s.do("PATCH", s.flunder(name)+query, o, append(options, contentType(strategic))...)
		case 5:
			s.do("PATCH", s.flunder(name)+query, d.operations(), append(options, contentType(jsonPatch))...)
		case 6, 7:
			// The reference keeps what an apply that creates says of a deletion that never was (A/endpoints/handlers/create.go forgets it, patch.go does not).
			o = with(o, "metadata.deletionTimestamp", nil, "metadata.deletionGracePeriodSeconds", nil)
			if !strings.Contains(query, "fieldManager") {
				query = strings.Replace(query+"&fieldManager=m", "&", map[bool]string{true: "?", false: "&"}[query == ""], 1)
			}
			s.do("PATCH", s.flunder(name)+query, o, append(options, contentType(apply))...)
		case 8:
			s.do("DELETE", s.flunder(name)+query, d.deleteOptions(), options...)
		}
		s.do("GET", s.flunder(name), nil)
	}
}

// randomObject is a flunder with some of what it may have, or may not; seldom with more than one thing that is wrong.
func (s *session) randomObject(d dice, name string) map[string]any {
	// It is always there: without it an update is refused, but not by the reference (allowed.go).
	o := object(name, "spec.reference", d.one("x", "y"))
	owner := func(uid string) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
	}
	good := [][]any{
		{"metadata.labels", map[string]any{"a": d.one("1", "2")}}, {"metadata.labels", map[string]any{"b": d.one("1", "2")}}, {"metadata.annotations", map[string]any{"note": d.one("1", "2")}},
		{"metadata.finalizers", []any{"example.com/a"}}, {"metadata.finalizers", []any{"example.com/b", "example.com/a"}}, {"metadata.finalizers", []any{}},
		{"metadata.ownerReferences", []any{owner("u1")}}, {"metadata.ownerReferences", []any{owner("u2"), owner("u1")}}, {"metadata.managedFields", []any{}},
		{"metadata.generateName", "generated-"}, {"spec.referenceType", "Flunder"}, {"metadata.labels", map[string]any{}}, {"metadata.namespace", s.ns()},
	}
	bad := [][]any{
		{"metadata.labels", map[string]any{"bad key!": "x"}}, {"metadata.labels", map[string]any{"a": "bad value!"}}, {"metadata.labels", map[string]any{"a": 1}}, {"metadata.labels", "x"},
		{"metadata.annotations", map[string]any{"bad key!": "x"}}, {"metadata.finalizers", []any{"bad"}}, {"metadata.finalizers", "x"}, {"metadata.finalizers", []any{"example.com/a", "example.com/a"}},
		{"metadata.ownerReferences", []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}}}, {"metadata.ownerReferences", []any{owner("u1"), owner("u1")}},
		{"metadata.ownerReferences", []any{owner("")}}, {"metadata.uid", "other"}, {"metadata.resourceVersion", "abc"}, {"metadata.namespace", "elsewhere"},
		{"metadata.name", "another"}, {"metadata.name", ""}, {"metadata.creationTimestamp", "2020-01-02T03:04:05Z"}, {"metadata.creationTimestamp", "yesterday"}, {"metadata.creationTimestamp", "2020-01-02 03:04:05Z"},
		{"metadata.deletionTimestamp", "2020-01-02T03:04:05Z"}, {"metadata.generation", 7}, {"metadata.generation", "7"}, {"metadata.managedFields", []any{map[string]any{}}},
		{"metadata.managedFields", []any{map[string]any{"manager": strings.Repeat("x", 129), "operation": "Update", "apiVersion": groupVersion, "fieldsType": "FieldsV1", "fieldsV1": map[string]any{}}}},
		{"metadata.unknown", 1}, {"spec.unknown", map[string]any{"a": 1}}, {"spec.reference", 1}, {"spec", "x"}, {"metadata", "x"}, {"apiVersion", "v1"}, {"kind", "Fischer"}, {"kind", ""},
		{"apiVersion", 1}, {"unknown", 1}, {"metadata.deletionGracePeriodSeconds", 3},
	}
	for range d.IntN(3) {
		o = with(o, good[d.IntN(len(good))]...)
	}
	if d.in(3) {
		o = with(o, bad[d.IntN(len(bad))]...)
	}
	return o
}

// operations is a JSON patch.
func (d dice) operations() []any {
	var all []any
	for range 1 + d.IntN(2) {
		one := map[string]any{
			"op":   d.one("add", "add", "replace", "remove", "test", "copy", "move", "other"),
			"path": d.one("/metadata/labels", "/metadata/labels/a", "/metadata/labels/b", "/metadata/annotations/note", "/metadata/finalizers/0", "/metadata/finalizers/-", "/spec/unknown", "/nope/x", "/metadata/nope", "", "x", "/metadata/labels/~2"),
		}
		switch one["op"] {
		case "copy", "move":
			one["from"] = d.one("/metadata/labels/a", "/metadata/labels/nope", "/metadata/annotations/note", "/nope/x")
		case "remove":
		default:
			values := []any{"1", "x", nil, map[string]any{"a": "1"}, 1}
			one["value"] = values[d.IntN(len(values))]
		}
		all = append(all, one)
	}
	return all
}

// deleteOptions is the body of a deletion, or none.
func (d dice) deleteOptions() any {
	bodies := []any{
		nil, nil, map[string]any{}, map[string]any{"propagationPolicy": "Orphan"}, map[string]any{"propagationPolicy": "x"}, map[string]any{"gracePeriodSeconds": 0}, map[string]any{"gracePeriodSeconds": -1},
		map[string]any{"preconditions": map[string]any{"uid": "other"}}, map[string]any{"preconditions": map[string]any{"resourceVersion": "1"}}, map[string]any{"dryRun": []any{"All"}}, map[string]any{"dryRun": []any{"x"}},
		map[string]any{"orphanDependents": true, "propagationPolicy": "Orphan"}, map[string]any{"kind": "Other"}, map[string]any{"kind": 1}, "x", "[]", map[string]any{"unknown": 1},
		map[string]any{"propagationPolicy": "x", "dryRun": []any{"x"}},
	}
	return bodies[d.IntN(len(bodies))]
}
