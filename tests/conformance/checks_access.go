package main

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// Who may come in, and what they may do.
func init() {
	// list is what everybody below asks for: flunders of the shared namespace.
	list := func(s *session) string { return root + "/namespaces/" + s.bed.run + "/flunders?labelSelector=none" }
	ask := func(area, name string, options ...option) {
		addDirect(area, name, func(s *session) { s.do("GET", list(s), nil, options...) })
	}
	remote := func(user string, more ...string) option {
		return func(r *request) {
			header("X-Remote-User", user)(r)
			for i := 0; i < len(more); i += 2 {
				header(more[i], more[i+1])(r)
			}
		}
	}
	for _, identity := range []string{"admin", "nobody", "", "stranger", "other-proxy", "front-proxy-client"} {
		ask("authentication", "a certificate of "+quoted(identity), as(identity))
		ask("authentication", "headers of a front proxy with a certificate of "+quoted(identity), as(identity), remote("admin", "X-Remote-Group", "system:masters"))
	}
	ask("authentication", "a front proxy for nobody", as("front-proxy-client"), remote("nobody", "X-Remote-Group", "nobodies"))
	ask("authentication", "a front proxy with no groups", as("front-proxy-client"), remote("somebody"))
	ask("authentication", "a front proxy for an empty user", as("front-proxy-client"), remote("", "X-Remote-Group", "system:masters"))
	ask("authentication", "a front proxy for two users", as("front-proxy-client"), remote("one"), header("X-Remote-User", "two"))
	ask("authentication", "a front proxy with a uid and extras", as("front-proxy-client"),
		remote("somebody", "X-Remote-Uid", "5", "X-Remote-Extra-Scopes", "a", "X-Remote-Extra-Example.com%2fkey", "b"))
	ask("authentication", "a front proxy for anonymous", as("front-proxy-client"), remote("system:anonymous", "X-Remote-Group", "system:unauthenticated"))

	add("authentication", "a token", func(s *session) {
		for _, value := range []string{
			"Bearer " + s.bed.token, "bearer " + s.bed.token, "Bearer  " + s.bed.token, "Bearer wrong", "Bearer", "Basic " + s.bed.token, "", "Bearer " + s.bed.token + "x",
		} {
			s.do("GET", list(s), nil, as(""), header("Authorization", value), unshownHeader("Authorization"))
		}
	})
	add("authentication", "a token that is not ASCII", func(s *session) {
		s.do("GET", list(s), nil, as(""), header("Authorization", "Bearer \xc3\xbc"))
		s.do("GET", list(s), nil, as(""), header("Authorization", "Bearer \xff"))
		s.do("GET", "/version", nil, as(""), header("Authorization", "Bearer \xc3\xbc"))
	})
	add("authentication", "a token beside a certificate", func(s *session) {
		s.do("GET", list(s), nil, as("nobody"), header("Authorization", "Bearer "+s.bed.token), unshownHeader("Authorization"))
		s.do("GET", list(s), nil, as("admin"), header("Authorization", "Bearer wrong"), unshownHeader("Authorization"))
	})
	add("authorization", "a reader may read and not write", func(s *session) {
		token := []option{as(""), header("Authorization", "Bearer "+s.bed.token), unshownHeader("Authorization")}
		flunders := root + "/namespaces/" + s.bed.run + "/flunders"
		s.do("GET", flunders+"/none", nil, token...)
		s.do("POST", flunders, object("a"), token...)
		s.do("PUT", flunders+"/a", object("a"), token...)
		s.do("PATCH", flunders+"/a", `{}`, append(token, contentType(merge))...)
		s.do("DELETE", flunders+"/a", nil, token...)
		s.do("DELETE", flunders, nil, token...)
		s.do("GET", flunders+"/a/status", nil, token...)
		s.do("GET", root+"/flunders", nil, token...)
		s.do("GET", root+"/fischers", nil, token...)
		s.do("GET", root+"/fischers/a", nil, token...)
		s.do("GET", root+"/namespaces/default/flunders", nil, token...)
		s.do("GET", root+"/others", nil, token...)
		s.do("GET", flunders+"?watch=true&timeoutSeconds=1&labelSelector=none", nil, append(token, brief)...)
		s.do("GET", flunders+"?fieldSelector=metadata.name%3Da", nil, append(token, brief)...)
	})
	add("authorization", "nobody may do nothing", func(s *session) {
		for _, path := range []string{root + "/flunders", root + "/fischers/a", root + "/namespaces/default/flunders/a", root + "/others", root} {
			s.do("GET", path, nil, as("nobody"), briefOnSuccess)
			s.do("GET", path, nil, as(""), briefOnSuccess)
		}
		s.do("POST", root+"/fischers", `{`, as("nobody"))
		s.do("GET", root+"/fischers/%22quoted%22", nil, as("nobody"))
	})

	impersonate := func(name string, identity string, headers ...string) {
		add("impersonation", name, func(s *session) {
			options := []option{as(identity)}
			for i := 0; i < len(headers); i += 2 {
				options = append(options, header(headers[i], headers[i+1]))
			}
			s.do("GET", list(s), nil, options...)
		})
	}
	impersonate("a user", "admin", "Impersonate-User", "ann")
	impersonate("a user who may", "admin", "Impersonate-User", "ann", "Impersonate-Group", "system:masters")
	impersonate("two groups", "admin", "Impersonate-User", "ann", "Impersonate-Group", "a", "Impersonate-Group", "system:masters")
	impersonate("a group alone", "admin", "Impersonate-Group", "system:masters")
	impersonate("a uid alone", "admin", "Impersonate-Uid", "5")
	impersonate("an extra alone", "admin", "Impersonate-Extra-Scopes", "x")
	impersonate("everything", "admin", "Impersonate-User", "ann", "Impersonate-Uid", "5", "Impersonate-Extra-Scopes", "x", "Impersonate-Group", "system:masters")
	impersonate("a service account", "admin", "Impersonate-User", "system:serviceaccount:default:default")
	impersonate("anonymous", "admin", "Impersonate-User", "system:anonymous")
	impersonate("an empty user", "admin", "Impersonate-User", "")
	impersonate("an empty user and another one", "admin", "Impersonate-User", "", "Impersonate-User", "ann")
	impersonate("an empty user and another one with a group", "admin", "Impersonate-User", "", "Impersonate-User", "ann", "Impersonate-Group", "system:masters")
	impersonate("by nobody", "nobody", "Impersonate-User", "ann")
	impersonate("a group by nobody", "nobody", "Impersonate-User", "nobody", "Impersonate-Group", "system:masters")
	impersonate("a service account by nobody", "nobody", "Impersonate-User", "system:serviceaccount:default:default")
	impersonate("by anonymous", "", "Impersonate-User", "ann")
	impersonate("a uid by nobody", "nobody", "Impersonate-User", "ann", "Impersonate-Uid", "5")

	// WebSockets.
	socket := func(name, query string, count int, change func(http.Header)) {
		add("websocket", name, func(s *session) {
			s.three()
			s.socket(s.flunders()+"?watch=true&timeoutSeconds=2"+query, count, change)
		})
	}
	socket("a watch", "&resourceVersion=0", 3, nil)
	socket("a watch to its end", "&resourceVersion=0", 100, nil)
	socket("a watch of a table", "&resourceVersion=0", 3, func(h http.Header) { h.Set("Accept", asTable) })
	socket("initial events", "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", 4, nil)
	socket("no origin", "", 1, func(h http.Header) { h.Del("Origin") })
	for _, origin := range []string{"null", "%zz", "localhost", "https://localhost:x", "file:///tmp", "/path"} {
		socket("the origin "+origin, "", 1, func(h http.Header) { h.Set("Origin", origin) })
	}
	socket("a subprotocol", "", 1, func(h http.Header) { h.Set("Sec-WebSocket-Protocol", "base64.binary.k8s.io") })
	socket("two subprotocols", "", 1, func(h http.Header) { h.Set("Sec-WebSocket-Protocol", "a, b") })
	socket("a bad option", "&resourceVersion=abc", 1, nil)
	socket("a bad selector", "&labelSelector=a+b", 1, nil)
	add("websocket", "a token as a subprotocol", func(s *session) {
		s.as = ""
		encoded := base64.RawURLEncoding.EncodeToString([]byte(s.bed.token))
		path := root + "/namespaces/" + s.bed.run + "/flunders?watch=true&timeoutSeconds=1"
		for _, protocols := range []string{
			"base64url.bearer.authorization.k8s.io." + encoded + ", base64.binary.k8s.io", "base64url.bearer.authorization.k8s.io." + encoded,
			"base64url.bearer.authorization.k8s.io.d3Jvbmc, x", "base64url.bearer.authorization.k8s.io.!, x", "x",
		} {
			s.socket(path, 0, func(h http.Header) { h.Set("Sec-WebSocket-Protocol", protocols) })
		}
	})
	add("websocket", "for a list", func(s *session) {
		s.create("a")
		s.socket(s.flunders(), 1, nil)
	})
}

// unshownHeader leaves a header out of the transcript.
func unshownHeader(name string) option {
	return func(r *request) { r.unshown = append(r.unshown, name) }
}

// socket opens a WebSocket and writes down the handshake's answer and the frames.
func (s *session) socket(path string, count int, change func(http.Header)) {
	config, err := s.bed.tls(s.as)
	if err != nil {
		panic(err)
	}
	h := http.Header{"Origin": {"https://localhost"}}
	if change != nil {
		change(h)
	}
	dialer := websocket.Dialer{TLSClientConfig: config, HandshakeTimeout: 20 * time.Second}
	connection, response, err := dialer.Dial("wss"+strings.TrimPrefix(s.base, "https")+path, h)
	s.say("WebSocket %s", path)
	if err != nil {
		if response == nil {
			s.say("  no answer: %v", err)
			return
		}
		s.say("  %d%s", response.StatusCode, headers(response.Header))
		body := make([]byte, 4096)
		length, _ := response.Body.Read(body)
		s.say("  %s", s.body(response.Header.Get("Content-Type"), body[:length]))
		return
	}
	defer connection.Close()
	s.say("  %d %s", response.StatusCode, response.Header.Get("Sec-Websocket-Protocol"))
	_ = connection.SetReadDeadline(time.Now().Add(20 * time.Second))
	for range count {
		kind, frame, err := connection.ReadMessage()
		if err != nil {
			s.say("  end: %v", closing(err))
			return
		}
		s.say("  frame of kind %d, a line's end %t: %s", kind, strings.HasSuffix(string(frame), "\n"), s.body("application/json", frame))
	}
}

func closing(err error) string {
	if closed, ok := err.(*websocket.CloseError); ok {
		return fmt.Sprintf("closed with %d", closed.Code)
	}
	return "broken off"
}
