package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// wire sends bytes over a connection of its own, which it shuts for writing where they say END, and writes down what comes back: the answers to requests of these methods,
// as far as they come, and whether the connection is open after that.
func (s *session) wire(what string, sent string, methods ...string) {
	config, err := s.bed.tls(s.as)
	if err != nil {
		panic(err)
	}
	config.NextProtos = []string{"http/1.1"}
	address := strings.TrimPrefix(s.base, "https://")
	connection, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", address, config)
	if err != nil {
		panic(err)
	}
	defer connection.Close()
	s.say("%s", what)
	sent, ends := strings.CutSuffix(sent, "END")
	go func() {
		_, _ = io.WriteString(connection, strings.ReplaceAll(sent, "HOST", address))
		if ends {
			_ = connection.CloseWrite()
		}
	}()
	reader := bufio.NewReader(connection)
	for _, method := range methods {
		_ = connection.SetReadDeadline(time.Now().Add(10 * time.Second))
		response, err := http.ReadResponse(reader, &http.Request{Method: method})
		if err != nil {
			s.say("  %s", broken(err))
			return
		}
		body, err := io.ReadAll(response.Body)
		s.say("  %s %d%s", response.Proto, response.StatusCode, headers(response.Header))
		if text := s.body(response.Header.Get("Content-Type"), body); text != "" && response.StatusCode != http.StatusOK {
			s.say("  %s", text)
		}
		if err != nil {
			s.say("  the body broke off")
			return
		}
	}
	_ = connection.SetReadDeadline(time.Now().Add(time.Second))
	if _, err := reader.ReadByte(); err != nil {
		s.say("  %s", broken(err))
	} else {
		s.say("  more")
	}
}

// plain sends bytes without TLS, and writes down all that comes back.
func (s *session) plain(sent string) {
	connection, err := net.DialTimeout("tcp", strings.TrimPrefix(s.base, "https://"), 10*time.Second)
	if err != nil {
		panic(err)
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(connection, sent)
	answer, err := io.ReadAll(connection)
	if text := string(answer); strings.HasPrefix(text, "HTTP/") {
		s.say("%q", text)
	} else {
		s.say("no HTTP")
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.say("open")
	}
}

func broken(err error) string {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "open"
	}
	return "closed"
}

// What HTTP/1.1 lets a client write, and what it does not.
func init() {
	const one = fischers + "/none"
	wire := func(name, sent string, methods ...string) {
		if len(methods) == 0 {
			methods = []string{"GET"}
		}
		add("wire", name, func(s *session) {
			s.wire(strings.SplitN(sent, "\r\n", 2)[0][:min(len(strings.SplitN(sent, "\r\n", 2)[0]), 100)], sent, methods...)
		})
	}
	get := func(path string, lines ...string) string {
		return "GET " + path + " HTTP/1.1\r\nHost: HOST\r\n" + strings.Join(append(lines, ""), "\r\n") + "\r\n"
	}
	wire("keep-alive", get(one)+get(one), "GET", "GET")
	wire("pipelined", get(one)+get("/version")+get(one)+get("/healthz"), "GET", "GET", "GET", "GET")
	wire("connection: close", get(one, "Connection: close"))
	wire("HTTP/1.0", "GET "+one+" HTTP/1.0\r\n\r\n")
	wire("HTTP/1.0 keep-alive", "GET "+one+" HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
	wire("HTTP/0.9", "GET "+one+"\r\n\r\n")
	wire("HTTP/1.2", "GET "+one+" HTTP/1.2\r\nHost: HOST\r\n\r\n")
	wire("HTTP/2.0 in words", "GET "+one+" HTTP/2.0\r\nHost: HOST\r\n\r\n")
	wire("no host", "GET "+one+" HTTP/1.1\r\n\r\n")
	wire("an empty host", "GET "+one+" HTTP/1.1\r\nHost:\r\n\r\n")
	wire("two hosts", get(one, "Host: other"))
	wire("a foreign host", "GET "+one+" HTTP/1.1\r\nHost: elsewhere.example.com\r\n\r\n")
	wire("a broken host", "GET "+one+" HTTP/1.1\r\nHost: a b\r\n\r\n")
	wire("an absolute target", "GET https://elsewhere.example.com"+one+" HTTP/1.1\r\nHost: HOST\r\n\r\n")
	wire("an asterisk", "OPTIONS * HTTP/1.1\r\nHost: HOST\r\n\r\n", "OPTIONS")
	wire("an asterisk to get", "GET * HTTP/1.1\r\nHost: HOST\r\n\r\n")
	wire("a tunnel", "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n", "CONNECT")
	wire("a target without a slash", "GET apis HTTP/1.1\r\nHost: HOST\r\n\r\n")
	wire("a target with a blank", "GET /ap is HTTP/1.1\r\nHost: HOST\r\n\r\n")
	wire("a target that is not ASCII", "GET "+fischers+"/n\xc3\xb6 HTTP/1.1\r\nHost: HOST\r\n\r\n")
	wire("a target with a broken escape", get("/healthz%"))
	wire("a name with a broken escape", get(one+"%zz"))
	wire("a query with a broken escape", get(one+"?x=%zz"))
	wire("a method in small letters", "get "+one+" HTTP/1.1\r\nHost: HOST\r\n\r\n")
	wire("a method that is none", "G(T "+one+" HTTP/1.1\r\nHost: HOST\r\n\r\n")
	wire("nonsense", "nonsense\r\n\r\n")
	wire("a header without a colon", get(one, "nonsense"))
	wire("a header with a blank before the colon", get(one, "X-Y : z"))
	wire("a header with a blank in its name", get(one, "X Y: z"))
	wire("a header without a name", get(one, ": z"))
	wire("a header with a control character", get(one, "X-Y: \x01"))
	wire("a header that is not ASCII", get(one, "X-Y: \xc3\xb6"))
	wire("a folded header", get(one, "X-Y: a", " b"))
	wire("lines that end in a line feed", strings.ReplaceAll(get(one), "\r\n", "\n"))
	wire("an empty line first", "\r\n"+get(one))
	for _, size := range []int{8 << 10, 60 << 10, 300 << 10, 900 << 10, 1100 << 10} {
		wire(fmt.Sprintf("a header of %d KiB", size>>10), get(one, "X-Y: "+strings.Repeat("z", size)))
		wire(fmt.Sprintf("a query of %d KiB", size>>10), get(one+"?x="+strings.Repeat("z", size)))
	}
	wire("99 headers", get(one, strings.Split(strings.TrimSpace(strings.Repeat("X-Y: z\n", 97)), "\n")...))
	wire("300 headers", get(one, strings.Split(strings.TrimSpace(strings.Repeat("X-Y: z\n", 300)), "\n")...))
	wire("a long path", get(fischers+"/"+strings.Repeat("z", 9000)))
	wire("HEAD and then another", "HEAD "+one+" HTTP/1.1\r\nHost: HOST\r\n\r\n"+get("/version"), "HEAD", "GET")
	wire("a GET with a body, and then another", get(one, "Content-Length: 2")+"{}"+get("/version"), "GET", "GET")
	wire("an upgrade that is none", get(one, "Connection: Upgrade", "Upgrade: other"))
	wire("an upgrade to HTTP/2", get(one, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"))
	wire("HTTP/2 without its being agreed on", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

	for _, begins := range []string{"GET /", "GET *", "HEAD /", "POST /", "PUT /", "PUT *", "OPTIONS *", "PATCH /", "DELETE /", "nonsense"} {
		addDirect("wire", begins+" without TLS", func(s *session) { s.plain(begins + " HTTP/1.1\r\nHost: localhost\r\n\r\n") })
	}

	body := fmt.Sprintf(`{"apiVersion":%q,"kind":"Flunder","metadata":{"name":"a"}}`, groupVersion)
	post := func(name string, lines []string, body string, methods ...string) {
		if len(methods) == 0 {
			methods = []string{"POST"}
		}
		add("wire", name, func(s *session) {
			s.wire("POST flunders", "POST "+s.flunders()+"?dryRun=All HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\n"+strings.Join(append(lines, ""), "\r\n")+"\r\n"+body, methods...)
		})
	}
	length := fmt.Sprintf("Content-Length: %d", len(body))
	next := get("/version")
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	post("a create", []string{length}, body+next, "POST", "GET")
	post("a create in chunks", []string{"Transfer-Encoding: chunked"}, chunked+next, "POST", "GET")
	post("a create in chunks with extensions and trailers", []string{"Transfer-Encoding: chunked"}, fmt.Sprintf("%x;a=b\r\n%s\r\n0\r\nX-Y: z\r\n\r\n", len(body), body)+next, "POST", "GET")
	post("a create in broken chunks", []string{"Transfer-Encoding: chunked"}, "zz\r\n"+body)
	post("a create in an encoding that there is not", []string{"Transfer-Encoding: other"}, body)
	post("a create compressed in transfer", []string{"Transfer-Encoding: gzip, chunked"}, chunked)
	post("a create in chunks and with a length", []string{"Transfer-Encoding: chunked", length}, chunked)
	post("a create without a length", nil, body)
	post("a create with a length of nothing", []string{"Content-Length: 0"}, next, "POST", "GET")
	post("a create with two lengths", []string{length, "Content-Length: 5"}, body)
	post("a create with one length twice", []string{length, length}, body)
	post("a create with a length that is none", []string{"Content-Length: abc"}, body)
	post("a create with a length below nothing", []string{"Content-Length: -1"}, body)
	post("a create with a length with a sign", []string{fmt.Sprintf("Content-Length: +%d", len(body))}, body)
	post("a create with a length that is too large", []string{"Content-Length: 99999999999999999999"}, body)
	post("a create shorter than its length says", []string{"Content-Length: 20"}, body+next, "POST")
	post("a create that asks first", []string{length, "Expect: 100-continue"}, body+next, "POST", "POST", "GET")
	post("a create that expects something else", []string{length, "Expect: 200-ok"}, body)
	post("a create that asks first and may not", []string{length, "Expect: 100-continue", "Impersonate-User: nobody"}, "", "POST")
	// What becomes of a body that breaks off is a matter of who notices first, at the front.
	wire("a request whose head breaks off", "GET "+one+" HTTP/1.1\r\nHost: HOSTEND")
}
