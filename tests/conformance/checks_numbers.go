package main

import (
	"fmt"
	"regexp"
)

// Numbers, by the text that they are kept and answered as: parsed, many of them would be equal.
func init() {
	numbers := []struct{ name, text string }{
		{"a whole number", "12"},
		{"a fraction", "0.5"},
		{"a fraction of nothing", "1.0"},
		{"minus nothing", "-0.0"},
		{"an exponent", "1e2"},
		{"a fraction with an exponent", "1.5E+3"},
		{"what is long without an exponent", "1e20"},
		{"what is too long without an exponent", "1e21"},
		{"very little", "1e-7"},
		{"little", "0.00001"},
		{"many digits", "0.1234567890123456789"},
		{"more than an integer holds", "9223372036854775808"},
		{"more than a float holds", "1e400"},
	}
	kept := regexp.MustCompile(`"(draught|hold)":[^,}]+`)
	for _, number := range numbers {
		addCustom("numbers", number.name, func(s *session) {
			text := func(version, number string) string {
				return fmt.Sprintf(`{"apiVersion":"fleet.example.com/v1","kind":"Trawler","metadata":{"name":"a"%s},"spec":{"port":"Hull","draught":%s,"hold":{"fish":[%s]}}}`,
					version, number, number)
			}
			show := func(what string, a *answer) {
				s.say("%s: %q, generation %v", what, kept.FindAllString(string(a.body), -1), a.at("metadata", "generation"))
			}
			created := s.do("POST", s.trawlers(), text("", number.text))
			show("created", created)
			if created.code >= 300 {
				return
			}
			got := s.do("GET", s.trawler("a"), nil, quiet)
			show("read", got)
			same := s.do("PUT", s.trawler("a"), text(fmt.Sprintf(`,"resourceVersion":%q`, got.rv()), number.text), quiet)
			show("written once more", same)
			s.say("another version %t", same.rv() != got.rv())
			patch := fmt.Sprintf(`{"spec":{"draught":%s,"hold":{"fish":[%s]}}}`, number.text, number.text)
			patched := s.do("PATCH", s.trawler("a"), patch, contentType(merge), quiet)
			show("patched", patched)
			s.say("another version %t", patched.rv() != same.rv())
		})
	}
}
