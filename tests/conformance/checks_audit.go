package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// auditLog is where the server that is asked records what is done.
func (s *session) auditLog() string {
	if s.subject {
		return s.bed.subjectLog
	}
	return s.bed.referenceLog
}

// recorded are the events of a request, once it is complete or nothing more comes.
func (s *session) recorded(id, last string) []map[string]any {
	var events []map[string]any
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		events = nil
		file, err := os.Open(s.auditLog())
		if err != nil {
			panic(err)
		}
		lines := bufio.NewReader(file)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				break
			}
			event := map[string]any{}
			if strings.Contains(string(line), id) && json.Unmarshal(line, &event) == nil && event["auditID"] == id {
				events = append(events, event)
			}
		}
		file.Close()
		if slices.ContainsFunc(events, func(event map[string]any) bool { return event["stage"] == last }) {
			break
		}
	}
	return events
}

// tell writes the events of a request into the transcript.
func (s *session) tell(id, last string) {
	var received any
	for _, event := range s.recorded(id, last) {
		delete(event, "auditID")
		if event["stage"] == "RequestReceived" {
			received = event["requestReceivedTimestamp"]
			s.say("  received and recorded at once: %t", received == event["stageTimestamp"])
		} else if received != nil {
			s.say("  received as it was before: %t", received == event["requestReceivedTimestamp"])
		}
		// How long each part of a slow request took is each server's own.
		if annotations, ok := event["annotations"].(map[string]any); ok {
			maps.DeleteFunc(annotations, func(key string, _ any) bool {
				// And its types are said to be deprecated, which is theirs alone.
				return strings.HasPrefix(key, "apiserver.latency.k8s.io/") || key == "k8s.io/deprecated" || key == "k8s.io/removed-release"
			})
			if len(annotations) == 0 {
				delete(event, "annotations")
			}
		}
		s.say("  %s", s.body("application/json", encode(event)))
	}
}

// auditID is a new one for a request of this check.
func (s *session) auditID(suffix string) string {
	return fmt.Sprintf("%s-%d-%s-%t", s.bed.run, s.number, suffix, s.subject)
}

// levels are the groups that the policy records, and how much of what they do.
var levels = []string{"metadata", "request", "request-response"}

// auditor are the headers of a front proxy for somebody whose requests are recorded.
func auditor(level string) option {
	return func(r *request) {
		identity := "front-proxy-client"
		r.as = &identity
		header("X-Remote-User", "auditor")(r)
		header("X-Remote-Group", "system:masters")(r)
		header("X-Remote-Group", "audited:"+level)(r)
	}
}

// audited sends a request and writes down what is recorded of it.
func (s *session) audited(level, method, path string, body any, options ...option) *answer {
	id := s.auditID(fmt.Sprint(len(s.transcript())))
	options = append([]option{auditor(level), header("Audit-Id", id), quiet}, options...)
	a := s.do(method, path, body, options...)
	s.say("%s %s%s: %d", method, path, s.shown(body), a.code)
	s.tell(id, "ResponseComplete")
	return a
}

// whole is a flunder with all that its type has, as it is recorded once it is read.
func whole(name string, more ...any) map[string]any {
	return object(name, append([]any{"spec.reference", "x", "spec.referenceType", "Flunder", "status", map[string]any{}}, more...)...)
}

// What is recorded of requests.
func init() {
	for _, level := range levels {
		audit := func(name string, ask func(s *session, do func(method, path string, body any, options ...option) *answer)) {
			addDirect("audit", name+" at "+level, func(s *session) {
				ask(s, func(method, path string, body any, options ...option) *answer {
					return s.audited(level, method, path, body, options...)
				})
			})
		}
		type do = func(method, path string, body any, options ...option) *answer
		audit("a create", func(s *session, do do) {
			do("POST", s.flunders(), whole("a"))
			do("POST", s.flunders(), whole("a"))
			do("POST", s.flunders(), whole("b", "metadata.uid", "u", "x", 1))
			do("POST", s.flunders()+"?dryRun=All", whole("c", "metadata.name", nil, "metadata.generateName", "generated-"))
			do("POST", s.flunders()+"?dryRun=All&fieldManager=m", whole("d"))
			do("POST", s.flunders(), whole("e", "metadata.namespace", s.ns()))
		})
		audit("a create that fails", func(s *session, do do) {
			do("POST", s.flunders(), "nonsense")
			do("POST", s.flunders(), whole("a", "kind", "Other"))
			do("POST", s.flunders(), whole("a", "metadata.namespace", "other"))
			do("POST", s.flunders()+"?fieldValidation=Strict", whole("a", "x", 1))
			do("POST", s.flunders(), whole("a", "spec.reference", nil))
			do("POST", s.flunders(), whole("a", "metadata.resourceVersion", "5"))
			do("POST", root+"/namespaces/none-of-that/flunders", whole("a"))
			do("POST", s.flunders(), whole("a"), contentType("text/plain"))
			do("POST", s.flunders(), whole("a"), accept("text/plain"))
			do("POST", s.flunders()+"?dryRun=x", whole("a"))
		})
		audit("a create of what leaves parts out", func(s *session, do do) {
			do("POST", s.flunders(), object("a", "metadata.resourceVersion", ""))
			do("POST", s.flunders(), object("b", "spec.reference", "x"))
		})
		audit("a create in YAML", func(s *session, do do) {
			do("POST", s.flunders(), "apiVersion: "+groupVersion+"\nkind: Flunder\nmetadata: {name: a}\nspec: {reference: x, referenceType: Flunder}\nstatus: {}\n", contentType("application/yaml"), accept("application/yaml"))
		})
		audit("reads", func(s *session, do do) {
			s.create("a", "metadata.labels", map[string]any{"app": "x"})
			do("GET", s.flunder("a"), nil)
			do("GET", s.flunder("none"), nil)
			do("GET", s.flunders()+"?labelSelector=app%3Dx&limit=5", nil)
			do("GET", s.flunders()+"?fieldSelector=metadata.name%3Da", nil)
			do("GET", s.flunders()+"?labelSelector=a+b", nil)
			do("GET", s.flunders(), nil, accept("application/json;as=Table;g=meta.k8s.io;v=v1"))
			do("GET", s.flunder("a"), nil, accept("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"))
			do("GET", s.flunders(), nil, accept("application/yaml"))
			do("GET", s.flunders(), nil, header("Accept-Encoding", "gzip"))
			do("GET", root+"/flunders?limit=1&fieldSelector=metadata.namespace%3D"+s.ns(), nil)
			do("HEAD", s.flunder("a"), nil)
			do("OPTIONS", s.flunder("a"), nil)
			do("FROBNICATE", s.flunder("a"), nil)
		})
		audit("an update", func(s *session, do do) {
			a := s.create("a")
			version := a.rv()
			s.mask(version, "<version>")
			s.mask(a.uid(), "<uid>")
			changed := whole("a", "metadata.resourceVersion", version, "metadata.uid", a.uid(), "spec.reference", "y")
			do("PUT", s.flunder("a"), changed)
			do("PUT", s.flunder("a"), changed)
			do("PUT", s.flunder("none"), whole("none"))
			do("PUT", s.flunder("a"), whole("b"))
		})
		audit("a patch", func(s *session, do do) {
			s.create("a")
			do("PATCH", s.flunder("a"), `{"metadata":{"labels":{"a":"b"}}}`, contentType(merge))
			do("PATCH", s.flunder("a"), `[{"op":"add","path":"/metadata/labels/c","value":"d"}]`, contentType(jsonPatch))
			do("PATCH", s.flunder("a"), `[{"op":"test","path":"/metadata/labels/c","value":"e"}]`, contentType(jsonPatch))
			do("PATCH", s.flunder("a"), `{"metadata":{"labels":{"e":"f"}}}`, contentType(strategic))
			do("PATCH", s.flunder("a"), `{}`, contentType("text/plain"))
			do("PATCH", s.flunder("none"), `{}`, contentType(merge))
			do("PATCH", s.flunder("b")+"?fieldManager=m", whole("b"), contentType(apply))
			do("PATCH", s.flunder("b")+"?fieldManager=o", whole("b", "spec.reference", "y"), contentType(apply))
		})
		audit("a delete", func(s *session, do do) {
			for _, name := range []string{"a", "b", "c", "e", "f"} {
				s.create(name)
			}
			s.create("d", "metadata.finalizers", []any{"example.com/x"})
			do("DELETE", s.flunder("a"), nil)
			do("DELETE", s.flunder("a"), nil)
			do("DELETE", s.flunder("b"), `{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":5,"propagationPolicy":"Background"}`)
			do("DELETE", s.flunder("c")+"?propagationPolicy=Orphan&gracePeriodSeconds=3", nil)
			do("DELETE", s.flunder("d"), `{}`)
			do("DELETE", s.flunder("d"), `{"preconditions":{"uid":"x"}}`)
			do("DELETE", s.flunder("d"), `nonsense`)
			do("DELETE", s.flunder("d")+"?propagationPolicy=Nothing", nil)
			do("DELETE", s.flunders()+"?labelSelector=none", nil)
			do("DELETE", s.flunders()+"?fieldSelector=metadata.name%3De", `{"dryRun":["All"]}`)
			do("DELETE", s.flunders(), nil, accept("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"))
			do("PATCH", s.flunder("d"), `{"metadata":{"finalizers":null}}`, contentType(merge))
		})
		audit("a watch", func(s *session, do do) {
			s.create("a")
			do("GET", s.flunders()+"?watch=1&timeoutSeconds=1", nil)
			do("GET", s.flunders()+"?watch=1&timeoutSeconds=1&resourceVersion=1", nil)
			do("GET", s.flunders()+"?watch=1&timeoutSeconds=1&sendInitialEvents=true", nil)
			do("GET", s.flunders()+"?watch=1&timeoutSeconds=1&resourceVersion=abc", nil)
			do("GET", s.flunders()+"?watch=1&timeoutSeconds=1&fieldSelector=x%3Dy", nil)
			do("GET", s.flunders()+"?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da", nil)
			do("GET", root+"/watch/namespaces/"+s.ns()+"/flunders?timeoutSeconds=1", nil)
		})
		audit("plain paths", func(s *session, do do) {
			for _, path := range []string{
				"/version", "/healthz", "/livez/ping", "/readyz?verbose", "/apis/wardle.example.com", root, "/openapi/v2", "/openapi/v3", "/metrics",
				"/", "/apis/wardle.example.com/v9", "/apis/other.example.com",
			} {
				do("GET", path, nil)
			}
			do("DELETE", "/apis", nil)
		})
		audit("paths of nothing", func(s *session, do do) {
			do("GET", root+"/others", nil)
			do("GET", root+"/namespaces/"+s.ns()+"/others/a", nil)
			do("GET", s.flunder("a")+"/status", nil)
			do("PUT", s.flunder("a")+"/scale", `{}`)
			do("GET", root+"/namespaces/"+s.ns(), nil)
			do("POST", s.flunder("a"), whole("a"))
			do("GET", s.flunder("a%2Fb"), nil)
		})
		audit("as somebody else", func(s *session, do do) {
			someone := []option{
				header("Impersonate-User", "bob"), header("Impersonate-Group", "bobs"), header("Impersonate-Uid", "7"), header("Impersonate-Extra-Scopes", "x"),
			}
			do("GET", fischers+"/none", nil, someone...)
			do("GET", fischers+"/none", nil, header("Impersonate-User", "bob"), header("Impersonate-Group", "system:masters"))
			do("GET", fischers+"/none", nil, header("Impersonate-Group", "bobs"))
			do("GET", fischers+"/none", nil, header("Impersonate-User", "system:anonymous"))
			do("GET", fischers+"/none", nil, header("Impersonate-User", "system:serviceaccount:default:x"))
		})
		audit("who asks", func(s *session, do do) {
			do("GET", fischers+"/none", nil, header("X-Remote-Uid", "7"), header("X-Remote-Extra-Scopes", "x"), header("X-Remote-Extra-Scopes", "y"), header("X-Remote-Extra-Acme.com%2FProject", "z"))
			do("GET", fischers+"/none", nil, header("User-Agent", ""))
			do("GET", fischers+"/none", nil, header("User-Agent", strings.Repeat("x", 1030)))
			do("GET", fischers+"/none", nil, header("X-Forwarded-For", "10.0.0.1, 10.0.0.2"))
			do("GET", fischers+"/none", nil, header("X-Forwarded-For", "10.0.0.1"), header("X-Forwarded-For", "10.0.0.2"))
			do("GET", fischers+"/none", nil, header("X-Forwarded-For", "nonsense,10.0.0.2"))
			do("GET", fischers+"/none", nil, header("X-Real-Ip", "10.0.0.3"))
			do("GET", fischers+"/none", nil, header("X-Forwarded-For", "10.0.0.1"), header("X-Real-Ip", "10.0.0.3"))
			do("GET", fischers+"/none", nil, header("X-Forwarded-For", "127.0.0.1"))
			do("GET", fischers+"/none?x=%zz&y=%3C%3E&z", nil)
		})
	}
	for _, level := range levels {
		addDirect("audit", "who may not at "+level, func(s *session) {
			s.ns()
			id := s.auditID("forbidden")
			s.do("GET", s.flunders(), nil, as("front-proxy-client"), header("X-Remote-User", "nobody"), header("X-Remote-Group", "audited:"+level), header("Audit-Id", id), quiet)
			s.tell(id, "ResponseComplete")
			id = s.auditID("impersonation")
			s.do("POST", s.flunders(), object("a"), as("front-proxy-client"), header("X-Remote-User", "nobody"), header("X-Remote-Group", "audited:"+level), header("Audit-Id", id),
				header("Impersonate-User", "bob"), quiet)
			s.tell(id, "ResponseComplete")
			id = s.auditID("watch")
			s.do("GET", s.flunders()+"?watch=1", nil, as("front-proxy-client"), header("X-Remote-User", "nobody"), header("X-Remote-Group", "audited:"+level), header("Audit-Id", id), quiet)
			s.tell(id, "ResponseComplete")
		})
	}
	const place = root + "/namespaces/audited/flunders"
	unknown := func(name string, options ...option) {
		addDirect("audit", "a stranger with "+name, func(s *session) {
			for _, path := range []string{place + "/a", place + "?watch=1"} {
				id := s.auditID(fmt.Sprint(len(s.transcript())))
				s.do("GET", path, nil, append(options, header("Audit-Id", id), quiet)...)
				s.say("GET %s", path)
				s.tell(id, "ResponseComplete")
			}
		})
	}
	unknown("nothing", as(""))
	unknown("a token", as(""), header("Authorization", "Bearer nonsense"))
	unknown("a password", as(""), header("Authorization", "Basic eDp5"))
	unknown("something else", as(""), header("Authorization", "Other x"))
	unknown("the front proxy's certificate and no user", as("front-proxy-client"))
	unknown("another proxy's certificate", as("other-proxy"), header("X-Remote-User", "a"))
	unknown("a certificate of elsewhere", as("stranger"))
	unknown("a certificate of elsewhere and a token", as("stranger"), header("Authorization", "bearer nonsense"))
	addDirect("audit", "a malformed timeout", func(s *session) {
		s.audited("request-response", "GET", fischers+"/none?timeout=abc", nil)
		s.audited("request-response", "GET", fischers+"?watch=1&timeoutSeconds=1&timeout=abc", nil)
	})
	for _, id := range []string{"short", strings.Repeat("0123456789", 7), "n\xc3\xb6"} {
		addDirect("audit", "an id of its own, "+quoted(id), func(s *session) {
			id := s.auditID("x") + id
			s.do("GET", fischers+"/none", nil, auditor("metadata"), header("Audit-Id", id), quiet)
			s.tell(id, "ResponseComplete")
		})
	}
}
