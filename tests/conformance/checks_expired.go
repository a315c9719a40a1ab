package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// forgotten is a version that neither server knows any more: etcd was compacted behind it, and the subject keeps less
// history than was written since.
const forgotten = "2"

// forget makes the reference's and the subject's oldest versions unreadable. Versions of this run stay.
func (b *bed) forget() error {
	etcd, err := b.client("apiserver-etcd-client", false)
	if err != nil {
		return err
	}
	ask := func(path string, body any) (map[string]any, error) {
		answer, err := etcd.Post(b.etcd+path, "application/json", strings.NewReader(string(encode(body))))
		if err != nil {
			return nil, err
		}
		defer answer.Body.Close()
		var out map[string]any
		if err := json.NewDecoder(answer.Body).Decode(&out); err != nil || answer.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("etcd answers %s with %d: %v", path, answer.StatusCode, err)
		}
		return out, nil
	}
	key := base64.StdEncoding.EncodeToString([]byte("/"))
	now, err := ask("/v3/kv/range", map[string]any{"key": key})
	if err != nil {
		return err
	}
	header, _ := now["header"].(map[string]any)
	if _, err := ask("/v3/kv/compaction", map[string]any{"revision": header["revision"]}); err != nil {
		return err
	}

	client, err := b.client("admin", false)
	if err != nil {
		return err
	}
	base := fmt.Sprintf("%s%s/namespaces/%s/flunders", b.subject, root, b.run)
	send := func(method, path, media string, body any) error {
		request, err := http.NewRequest(method, base+path, strings.NewReader(string(encode(body))))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", media)
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode > 299 {
			return fmt.Errorf("%s %s: %d", method, base+path, answer.StatusCode)
		}
		return nil
	}
	if err := send("POST", "", "application/json", object("worn")); err != nil {
		return err
	}
	// More than it keeps (hack/xtask/src/cluster/wardle.rs).
	for i := range 2100 {
		if err := send("PATCH", "/worn", merge, map[string]any{"metadata": map[string]any{"labels": map[string]any{"n": fmt.Sprint(i)}}}); err != nil {
			return err
		}
	}
	return send("DELETE", "/worn", "application/json", map[string]any{})
}

// continued is a token that says where a list goes on, and in which version, as the servers write them.
func continued(version int, start string) string {
	token, err := json.Marshal(map[string]any{"v": "meta.k8s.io/v1", "rv": version, "start": start})
	if err != nil {
		panic(err)
	}
	return url.QueryEscape(base64.RawURLEncoding.EncodeToString(token))
}

// Versions that are gone.
func init() {
	for _, query := range []string{
		"resourceVersionMatch=Exact", "resourceVersionMatch=Exact&limit=1", "limit=1", "resourceVersionMatch=NotOlderThan", "resourceVersionMatch=NotOlderThan&limit=1", "",
		"resourceVersionMatch=Exact&labelSelector=app%3Dx", "resourceVersionMatch=Exact&fieldSelector=metadata.name%3Da",
	} {
		add("expired", "a list of a version that is gone, with "+query, func(s *session) {
			s.three()
			s.do("GET", s.flunders()+"?resourceVersion="+forgotten+"&"+query, nil)
		})
	}
	for name, form := range map[string]string{"a table": asTable, "metadata": asPartialList, "YAML": "application/yaml"} {
		add("expired", "a list of a version that is gone, as "+name, func(s *session) {
			s.three()
			s.do("GET", s.flunders()+"?resourceVersionMatch=Exact&resourceVersion="+forgotten, nil, accept(form))
		})
	}
	add("expired", "a token whose version is gone, and the one that comes with the refusal", func(s *session) {
		s.three()
		masked := func(token string) option { return func(r *request) { r.masked = append(r.masked, token) } }
		token := continued(2, "a\x00")
		gone := s.do("GET", s.flunders()+"?limit=1&continue="+token, nil, masked(token))
		again := url.QueryEscape(gone.text("metadata", "continue"))
		second := s.do("GET", s.flunders()+"?limit=1&continue="+again, nil, masked(again))
		third := url.QueryEscape(second.text("metadata", "continue"))
		s.do("GET", s.flunders()+"?limit=1&continue="+third, nil, masked(third))
		s.do("GET", s.flunders()+"?continue="+again, nil, masked(again))
		s.do("GET", s.flunders()+"?continue="+token, nil, masked(token))
		s.do("GET", s.flunders()+"?continue="+token+"&labelSelector=app%3Dx", nil, masked(token))
		s.do("GET", s.flunders()+"?limit=1&continue="+token, nil, masked(token), accept(asTable))
	})
	add("expired", "a token of a version ahead", func(s *session) {
		s.three()
		token := continued(9_999_999, "a\x00")
		s.do("GET", s.flunders()+"?limit=1&continue="+token, nil, func(r *request) { r.masked = append(r.masked, token) })
	})
	for _, query := range []string{
		"", "&allowWatchBookmarks=true", "&labelSelector=app%3Dx", "&fieldSelector=metadata.name%3Da", "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		"&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
	} {
		add("expired", "a watch from a version that is gone, with "+query, func(s *session) {
			s.three()
			s.watch(s.flunders()+"?watch=true&timeoutSeconds=2&resourceVersion="+forgotten+query, nil, nil)
		})
	}
	for name, form := range map[string]string{"a table": asTable, "metadata": asPartial} {
		add("expired", "a watch from a version that is gone, as "+name, func(s *session) {
			s.three()
			s.watch(s.flunders()+"?watch=true&timeoutSeconds=2&resourceVersion="+forgotten, nil, nil, accept(form))
		})
	}
	add("expired", "a get and a delete at a version that is gone", func(s *session) {
		s.three()
		s.do("GET", s.flunder("a")+"?resourceVersion="+forgotten, nil)
		s.do("DELETE", s.flunders()+"?resourceVersionMatch=Exact&resourceVersion="+forgotten, nil)
	})
}
