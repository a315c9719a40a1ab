package main

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// allow lets a user do something to trawlers in this check's namespace.
func (s *session) allow(user string, verbs ...string) {
	ctx := context.Background()
	rbac, ns := s.bed.kube.RbacV1(), s.ns()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"fleet.example.com", "wardle.example.com"}, Resources: []string{"*"}, Verbs: verbs}},
	}
	// The other server's turn finds both made.
	_, _ = rbac.Roles(ns).Create(ctx, role, metav1.CreateOptions{})
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}
	_, _ = rbac.RoleBindings(ns).Create(ctx, binding, metav1.CreateOptions{})
}

// What is said first, when more than one thing is wrong.
func init() {
	hidden := func(r *request) { r.unshownBody = true }
	nowhere := fleet + "/namespaces/none-such/trawlers"
	invalid := trawler("a", "spec.port", nil, "spec.nets", 1)
	badLabels := map[string]any{"-": "-"}

	addCustom("order", "a namespace that is missing, before values that are refused", func(s *session) {
		s.do("POST", nowhere, invalid)
		s.do("POST", nowhere+"?dryRun=All", invalid)
		s.do("POST", nowhere, trawler("a", "metadata.labels", badLabels))
		s.do("POST", nowhere, trawler("A_"))
		s.do("PATCH", nowhere+"/a?fieldManager=me", invalid, contentType(apply))
		s.do("PATCH", nowhere+"/a?fieldManager=me", trawler("a", "metadata.uid", "u"), contentType(apply))
	})
	add("order", "a namespace that is missing, before values that are refused", func(s *session) {
		nowhere := root + "/namespaces/none-such/flunders"
		s.do("POST", nowhere, object("a", "spec.referenceType", "Fischer"))
		s.do("POST", nowhere, object("a", "metadata.labels", badLabels))
		s.do("POST", nowhere, object("a", "spec.unknown", 1))
		s.do("POST", nowhere+"?fieldValidation=Strict", object("a", "spec.unknown", 1))
		s.do("POST", nowhere, object("a", "spec.reference", 1))
		s.do("POST", nowhere, object("a", "metadata.namespace", "default"))
		s.do("POST", nowhere+"?dryRun=x", object("a"))
	})
	for _, query := range []string{
		"limit=x", "labelSelector=%3D", "labelSelector=%3D&resourceVersionMatch=Exact", "fieldSelector=foo&resourceVersionMatch=Exact",
		"fieldSelector=foo%3D1&resourceVersionMatch=Exact", "fieldSelector=foo%3D1&resourceVersion=x", "resourceVersion=x", "sendInitialEvents=true", "continue=x",
		"watch=1&limit=x", "watch=1&labelSelector=%3D&sendInitialEvents=true", "watch=1&resourceVersion=x", "watch=1&fieldSelector=foo%3D1&resourceVersionMatch=Exact",
		"watch=1&continue=x&resourceVersionMatch=NotOlderThan", "watch=1&continue=x&resourceVersionMatch=Exact&sendInitialEvents=true", "watch=1&continue=x",
	} {
		add("order", "options that are wrong, before forms that there are not: "+query, func(s *session) {
			for _, form := range []string{asPartial, asTable, "application/json"} {
				s.do("GET", s.flunders()+"?includeObject=Other&"+query, nil, accept(form))
			}
		})
	}
	add("order", "an object that is not there, before forms that there are not", func(s *session) {
		for _, form := range []string{asPartialList, asTable} {
			s.do("GET", s.flunder("none")+"?includeObject=Other", nil, accept(form))
			s.do("GET", s.flunder("none")+"?includeObject=Other&resourceVersion=abc", nil, accept(form))
		}
	})
	add("order", "a form that there is not, after a create", func(s *session) {
		s.do("POST", s.flunders(), object("a"), accept(asPartialList))
		s.do("GET", s.flunder("a"), nil, brief)
	})
	for _, name := range []string{"None", "%20", "a%2Fb", "a%3Fb", "a%25b"} {
		add("order", "a namespace of a name that none has, "+name, func(s *session) {
			s.do("POST", root+"/namespaces/"+name+"/flunders", object("a"))
		})
	}
	addCustom("order", "what is wrong with metadata and with values, together", func(s *session) {
		s.do("POST", s.trawlers(), with(invalid, "metadata.labels", badLabels))
		s.do("POST", s.trawlers(), with(invalid, "metadata.name", nil))
		s.do("POST", s.trawlers(), with(invalid, "metadata.name", "A_"))
		a := s.setup("POST", s.trawlers(), trawler("a"))
		// The causes of changes to a custom resource tell of its metadata three times, those of a typed kind twice.
		change := func(method, query string, body any, options ...option) {
			a := s.do(method, s.trawler("a")+query, body, append(options, quiet)...)
			s.say("%s: %d %s", method, a.code, a.text("message"))
		}
		change("PUT", "", with(a.json, "spec.port", nil, "metadata.labels", badLabels))
		change("PATCH", "", `{"metadata":{"labels":{"-":"-"}},"spec":{"port":null}}`, contentType(merge))
		change("PATCH", "?fieldManager=me&force=true", with(invalid, "metadata.labels", badLabels), contentType(apply))
	})
	addCustom("order", "a version that is stale, before values that are refused", func(s *session) {
		s.setup("POST", s.trawlers(), trawler("a"))
		stale := with(invalid, "metadata.resourceVersion", "1")
		s.do("PUT", s.trawler("a"), stale)
		s.do("PATCH", s.trawler("a")+"?fieldManager=me&force=true", stale, contentType(apply))
		s.do("PATCH", s.trawler("a")+"?fieldManager=me&force=true", with(stale, "spec.port", nil, "spec.nets", "x"), contentType(apply))
		s.do("PATCH", s.trawler("a"), `{"metadata":{"resourceVersion":"1"},"spec":{"port":null}}`, contentType(merge))
		s.do("PATCH", s.trawler("a"), `[{"op":"add","path":"/metadata/resourceVersion","value":"1"},{"op":"remove","path":"/spec/port"}]`, contentType(jsonPatch))
		s.do("PUT", s.trawler("a"), with(stale, "metadata.labels", badLabels))
		s.do("PUT", s.trawler("a"), with(stale, "metadata.uid", "other"))
		s.do("PUT", s.trawler("a"), with(invalid, "metadata.uid", "other"))
	})
	addCustom("order", "values that are refused, before a name that is taken", func(s *session) {
		s.setup("POST", s.trawlers(), trawler("a"))
		s.do("POST", s.trawlers(), invalid)
		s.do("POST", s.trawlers(), trawler("a", "metadata.resourceVersion", "5"))
		s.do("POST", s.trawlers(), trawler("b", "metadata.resourceVersion", "5", "metadata.labels", badLabels))
	})
	addCustom("order", "values that are refused, before the permission to create by an apply", func(s *session) {
		s.allow("patcher", "get", "patch")
		options := []option{contentType(apply), header("Impersonate-User", "patcher")}
		s.do("PATCH", s.trawler("a")+"?fieldManager=me", invalid, options...)
		s.do("PATCH", s.trawler("a")+"?fieldManager=me", trawler("a", "metadata.labels", badLabels), options...)
		s.do("PATCH", s.trawler("a")+"?fieldManager=me", trawler("a", "metadata.uid", "u"), options...)
		s.do("PATCH", s.trawler("a")+"?fieldManager=me", trawler("a"), options...)
		s.setup("POST", s.trawlers(), trawler("a"))
		s.do("PATCH", s.trawler("a")+"?fieldManager=me", trawler("a", "spec.nets", 1), options...)
	})

	// Two references to one owner: once before and once after admission, and of a patch after it alone.
	owner := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}
	twice, thrice := []any{owner, owner}, []any{owner, owner, owner}
	// Behind kube-apiserver, the garbage collector would find that the owner is not there.
	addDirect("order", "owners that stand twice", func(s *session) {
		s.do("POST", s.flunders(), object("a", "metadata.ownerReferences", twice))
		s.do("POST", s.flunders(), object("b", "metadata.ownerReferences", thrice))
		a := s.do("GET", s.flunder("a"), nil, quiet)
		s.do("PUT", s.flunder("a"), with(a.json, "metadata.ownerReferences", thrice), hidden)
		s.do("PATCH", s.flunder("a"), map[string]any{"metadata": map[string]any{"ownerReferences": twice}}, contentType(merge))
		s.do("PATCH", s.flunder("a"), []any{map[string]any{"op": "add", "path": "/metadata/ownerReferences/-", "value": owner}}, contentType(jsonPatch))
	})
}
