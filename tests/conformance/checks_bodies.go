package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
)

// How large, how deep and how encoded a body may be.
func init() {
	hidden := func(r *request) { r.unshownBody = true }
	// sized is a flunder of exactly so many bytes, most of them in a field that is not known.
	sized := func(size int) string {
		begin, end := `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"a"},"x":"`, `"}`
		return begin + strings.Repeat("x", size-len(begin)-len(end)) + end
	}
	const limit = 3 << 20
	for _, size := range []int{limit - 1, limit, limit + 1} {
		name := fmt.Sprintf("%d bytes", size)
		add("bodies", "a create of "+name, func(s *session) { s.do("POST", s.flunders(), sized(size)) })
		add("bodies", "an update of "+name, func(s *session) {
			s.create("a")
			s.do("PUT", s.flunder("a"), sized(size))
		})
		for _, media := range []string{merge, strategic, apply, jsonPatch} {
			add("bodies", "a patch of "+name+" as "+media, func(s *session) {
				s.create("a")
				s.do("PATCH", s.flunder("a")+"?fieldManager=m", sized(size), contentType(media))
			})
		}
		add("bodies", "a delete of "+name, func(s *session) {
			s.create("a")
			s.do("DELETE", s.flunder("a"), strings.Repeat(" ", size-2)+"{}")
		})
		add("bodies", "a deletion of a collection of "+name, func(s *session) {
			s.create("a")
			s.do("DELETE", s.flunders(), strings.Repeat(" ", size-2)+"{}")
		})
	}
	for _, count := range []int{9_999, 10_000, 10_001} {
		add("bodies", fmt.Sprintf("a JSON patch of %d operations", count), func(s *session) {
			s.create("a", "spec.reference", "x")
			s.do("PATCH", s.flunder("a"), "["+strings.TrimSuffix(strings.Repeat(`{"op":"test","path":"/spec/reference","value":"x"},`, count), ",")+"]", contentType(jsonPatch))
		})
	}
	add("bodies", "a JSON patch that copies what it copied", func(s *session) {
		s.create("a", "metadata.annotations", map[string]any{"a": strings.Repeat("x", 1000)})
		operations := []string{}
		for i := range 30 {
			operations = append(operations, fmt.Sprintf(`{"op":"copy","from":"/metadata/annotations","path":"/metadata/annotations/%d"}`, i))
		}
		s.do("PATCH", s.flunder("a"), "["+strings.Join(operations, ",")+"]", contentType(jsonPatch))
	})
	// A patch of some thousand levels takes the reference half a minute.
	for _, depth := range []int{100, 120, 10_001, 100_000} {
		open, shut := strings.Repeat(`{"x":`, depth), strings.Repeat("}", depth)
		lists, ends := strings.Repeat("[", depth), strings.Repeat("]", depth)
		name := fmt.Sprintf("a nesting of %d", depth)
		add("bodies", name+" in a create", func(s *session) {
			s.do("POST", s.flunders(), `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"a"},"x":`+open+"1"+shut+"}")
		})
		add("bodies", name+" of lists in a create", func(s *session) {
			s.do("POST", s.flunders(), `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"a"},"x":`+lists+ends+"}")
		})
		add("bodies", name+" in a merge patch", func(s *session) {
			s.create("a")
			s.do("PATCH", s.flunder("a"), `{"x":`+open+"1"+shut+"}", contentType(merge))
		})
		add("bodies", name+" in a JSON patch", func(s *session) {
			s.create("a")
			s.do("PATCH", s.flunder("a"), `[{"op":"add","path":"/x","value":`+open+"1"+shut+"}]", contentType(jsonPatch))
		})
		add("bodies", name+" in a strategic patch", func(s *session) {
			s.create("a")
			s.do("PATCH", s.flunder("a"), `{"x":`+open+"1"+shut+"}", contentType(strategic))
		})
		add("bodies", name+" in options of a delete", func(s *session) {
			s.create("a")
			s.do("DELETE", s.flunder("a"), `{"x":`+open+"1"+shut+"}")
		})
	}
	for _, depth := range []int{50, 100} {
		add("bodies", fmt.Sprintf("a nesting of %d in YAML", depth), func(s *session) {
			s.do("POST", s.flunders(), "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: a}\nx: "+strings.Repeat("{x: ", depth)+"1"+strings.Repeat("}", depth)+"\n", contentType("application/yaml"))
		})
	}
	add("bodies", "aliases of YAML that grow", func(s *session) {
		lines := []string{"apiVersion: wardle.example.com/v1alpha1", "kind: Flunder", "metadata: {name: a}", `a0: &a0 ["x","x","x","x","x","x","x","x","x"]`}
		for i := 1; i < 9; i++ {
			lines = append(lines, fmt.Sprintf("a%d: &a%d [%s]", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), ",")))
		}
		a := s.do("POST", s.flunders(), strings.Join(lines, "\n")+"\n", contentType("application/yaml"), quiet)
		s.say("%d", a.code)
	})

	// Encodings.
	packed := func() []byte {
		var out bytes.Buffer
		writer := gzip.NewWriter(&out)
		_, _ = writer.Write(encode(object("a")))
		_ = writer.Close()
		return out.Bytes()
	}()
	encodings := func(name string, body any, options ...option) {
		add("bodies", name, func(s *session) { s.do("POST", s.flunders(), body, append(options, hidden)...) })
	}
	encodings("compressed, and said to be", packed, header("Content-Encoding", "gzip"), brief)
	encodings("compressed, and not said to be", packed, brief)
	encodings("not compressed, and said to be", object("a"), header("Content-Encoding", "gzip"))
	encodings("in an encoding that there is not", object("a"), header("Content-Encoding", "other"))
	encodings("as it is", object("a"), header("Content-Encoding", "identity"))
	encodings("in another character set", object("a"), contentType("application/json; charset=latin1"))
	encodings("with parameters of its type", object("a"), contentType("application/json;version=2;x=\"y\""))
	encodings("of a type with blanks", object("a"), contentType(" application/json "))
	encodings("of a type that is broken", object("a"), contentType("application/json;"))
	encodings("of a type that is more broken", object("a"), contentType("application/json;x"))
	encodings("of two types", object("a"), contentType("application/json"), header("Content-Type", "application/yaml"))
	encodings("of JSON as a stream", object("a"), contentType("application/json;stream=watch"))
	encodings("of protobuf", "k8s\x00abc", contentType("application/vnd.kubernetes.protobuf"))
	for _, protocol := range []option{http1, func(*request) {}} {
		name := "over HTTP/2"
		if r := (&request{}); func() bool { protocol(r); return r.http1 }() {
			name = "over HTTP/1.1"
		}
		add("bodies", "of unknown length, "+name, func(s *session) { s.do("POST", s.flunders(), object("a"), protocol, unknownLength) })
		add("bodies", "of unknown length and none, "+name, func(s *session) {
			s.do("POST", s.flunders(), "", protocol, unknownLength)
			s.create("a")
			s.do("DELETE", s.flunder("a"), "", protocol, unknownLength)
		})
		add("bodies", "of unknown length and too long, "+name, func(s *session) { s.do("POST", s.flunders(), sized(limit+1), protocol, unknownLength) })
	}
	add("bodies", "where there should be none", func(s *session) {
		s.create("a")
		s.do("GET", s.flunder("a"), `{"x":1}`)
		s.do("GET", s.flunders(), "nonsense")
		s.do("GET", s.flunders()+"?watch=1&timeoutSeconds=1", "nonsense", brief)
	})
	for method, media := range map[string]string{"PUT": "application/json", "PATCH": merge, "POST": "application/json", "DELETE": "application/json"} {
		for _, body := range []string{"", " ", "{}", "null", "[]", "\x00", `{"kind":"Flunder"}`} {
			add("bodies", fmt.Sprintf("%s of %q", method, body), func(s *session) {
				s.create("a")
				path := s.flunder("a")
				if method == "POST" {
					path = s.flunders()
				}
				s.do(method, path, body, contentType(media))
			})
		}
	}
	for _, field := range []string{`"KIND":"x"`, `"Kind":"Flunder"`, `"ApiVersion":"v9"`, `"apiversion":""`} {
		add("bodies", "a type by another name: "+field, func(s *session) {
			for _, media := range []string{"application/json", "application/yaml"} {
				s.do("POST", s.flunders(), `{`+field+`,"metadata":{"name":"a"}}`, contentType(media))
			}
			a := s.create("b")
			s.do("PUT", s.flunder("b"), `{`+field+`,"metadata":{"name":"b","resourceVersion":"`+a.rv()+`"}}`, func(r *request) { r.unshownBody = true })
			s.do("DELETE", s.flunder("b"), `{`+field+`}`)
			s.do("DELETE", s.flunder("b"), `{"apiVersion":"v1",`+field+`}`)
		})
	}
	numbers := map[string]string{
		"a large number": "123456789012345678901234567890", "a number with an exponent": "1e2", "a huge exponent": "1e999", "minus nothing": "-0", "a fraction": "1.0",
		"a leading nothing": "01", "hexadecimal": "0x1", "infinity": "Infinity", "no number": "NaN",
	}
	for name, number := range numbers {
		add("bodies", "a generation that is "+name, func(s *session) {
			s.do("POST", s.flunders(), `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"a","generation":`+number+`}}`)
		})
		add("bodies", "an unknown field that is "+name, func(s *session) {
			s.do("POST", s.flunders(), `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"a"},"x":`+number+`}`)
		})
	}
	texts := map[string]string{
		"an escape": `\u0041`, "half a pair": `\ud800`, "a pair": `\ud83d\ude00`, "a line's end": "\n", "an escaped null": `\u0000`, "a bad escape": `\x`, "a tab": "\t",
		"an angle bracket": "<>&", "a line separator": "\u2028", "no UTF-8": "\xff",
	}
	for name, text := range texts {
		add("bodies", "a text with "+name, func(s *session) {
			s.do("POST", s.flunders(), `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"a"},"spec":{"reference":"`+text+`"}}`)
			s.do("GET", s.flunder("a"), nil)
			s.do("PATCH", s.flunder("a"), `{"metadata":{"annotations":{"note":"`+text+`"}}}`, contentType(merge))
		})
	}
}
