package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// What becomes of each field of Stoa's kinds: left out, null, of another type, beside one that nobody knows, twice, with another value.
// A custom resource knows of them what its schema says, which is what Stoa publishes: the checks of schemas are about that. What Stoa
// checks besides, as typed kinds do in code, is not asked for.

// place is where a value is in an object: keys and positions.
type place []any

func (p place) String() string {
	var out strings.Builder
	for _, part := range p {
		switch part := part.(type) {
		case string:
			if out.Len() > 0 {
				out.WriteByte('.')
			}
			out.WriteString(part)
		case int:
			fmt.Fprintf(&out, "[%d]", part)
		}
	}
	return out.String()
}

// each calls a function for every value at or beneath a place that the schema says something of, in an order that is always the
// same.
func each(at place, value any, schema map[string]any, found func(at place, value any, schema map[string]any)) {
	found(at, value, schema)
	switch value := value.(type) {
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		for _, key := range sortedKeys(value) {
			if of, isKnown := properties[key].(map[string]any); isKnown {
				each(append(slices.Clone(at), key), value[key], of, found)
			}
		}
	case []any:
		of, _ := schema["items"].(map[string]any)
		for i := range value {
			each(append(slices.Clone(at), i), value[i], of, found)
		}
	}
}

// isKey says whether the last part is a key in what is below the spec.
func (p place) isKey() bool {
	_, isKey := p[len(p)-1].(string)
	return isKey && len(p) > 1
}

// replaced is a value with something else at a place in it; nil removes a key.
func replaced(value any, at place, by any) any {
	if len(at) == 0 {
		return by
	}
	switch part := at[0].(type) {
	case string:
		object := value.(map[string]any)
		if inner := replaced(object[part], at[1:], by); inner == nil {
			delete(object, part)
		} else {
			object[part] = inner
		}
	case int:
		list := value.([]any)
		list[part] = replaced(list[part], at[1:], by)
	}
	return value
}

// null stands for JSON's.
type null struct{}

func (null) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

func init() {
	for _, k := range kinds {
		if k.whole != nil {
			askStoa(k, "fields that objects here have", func(c *collection) {
				if missing := untold(c, c.specSchema()); c.subject && missing != nil {
					c.say("none has %v", missing)
				}
				c.say("all")
			})
		}
		for number := range k.whole {
			ask := func(name string, asked func(*subjectMatter)) {
				title := "fields"
				if number > 0 {
					title = fmt.Sprintf("other fields (%d)", number)
				}
				askStoa(k, title+" "+name, func(c *collection) {
					asked(&subjectMatter{c, c.wholeOf(number), c.specSchema()})
					if c.transcript() == "" {
						c.say("nothing of it here")
					}
				})
			}
			askFields(ask)
			if !k.dry && !k.unchanging {
				askLists(ask)
			}
		}
	}
}

// specSchema is that of the spec, as Stoa publishes it.
func (c *collection) specSchema() map[string]any {
	properties, _ := c.published(c.bed.stoa, c.kind.group)["properties"].(map[string]any)
	return properties["spec"].(map[string]any)
}

// subjectMatter is an object with all fields, and the schema of its spec as Stoa publishes it.
type subjectMatter struct {
	*collection
	whole, schema map[string]any
}

func (m *subjectMatter) each(found func(at place, value any, schema map[string]any)) {
	each(place{"spec"}, m.whole["spec"], m.schema, found)
}

// with is the object with something else at a place.
func (m *subjectMatter) with(at place, value any) map[string]any {
	return replaced(copied(m.whole), at, value).(map[string]any)
}

// try creates nothing, and tells what would come of it.
func (m *subjectMatter) try(what string, o any, options ...option) {
	a := m.do("POST", m.all()+"?dryRun=All&fieldManager=m", o, append(options, quiet)...)
	m.say("%s\n  %d%s\n  %s", what, a.code, headers(a.header), m.body("application/json", a.body))
}

// strictly does so where nothing is let pass.
func (m *subjectMatter) strictly(o any, options ...option) {
	a := m.do("POST", m.all()+"?dryRun=All&fieldValidation=Strict", o, append(options, quiet)...)
	m.say("strictly: %d %s", a.code, a.text("message"))
}

var position = regexp.MustCompile(`\[\d+\]`)

// field is a place as the lists of a kind's fields have it.
func (p place) field() string {
	return position.ReplaceAllString(strings.TrimPrefix(p.String(), "spec."), "[]")
}

// isRuled says whether what a field is left out for is one of Stoa's own rules.
func (m *subjectMatter) isRuled(at place) bool {
	field := at.field()
	// Of subjects, a ServiceAccount has one.
	return slices.Contains(m.kind.ruled, field) || field == "owners[].namespace" || field == "members[].subject.namespace"
}

// untold are fields of the schema that no object of a kind has, and that are not known to be in none.
func untold(c *collection, schema map[string]any) []string {
	told := map[string]bool{}
	for _, spec := range c.kind.whole {
		each(place{"spec"}, copied(spec(c)), schema, func(at place, _ any, _ map[string]any) { told[at.field()] = true })
	}
	var fields []string
	var walk func(at place, schema map[string]any)
	walk = func(at place, schema map[string]any) {
		properties, _ := schema["properties"].(map[string]any)
		for _, key := range sortedKeys(properties) {
			inner := append(slices.Clone(at), key)
			if field := inner.field(); told[field] {
				walk(inner, properties[key].(map[string]any))
			} else if !slices.ContainsFunc(c.kind.untold, func(of string) bool { return field == of || strings.HasPrefix(field, of+".") }) {
				fields = append(fields, field)
			}
		}
		if items, isList := schema["items"].(map[string]any); isList {
			walk(append(slices.Clone(at), 0), items)
		}
	}
	walk(place{"spec"}, schema)
	return fields
}

// ofOtherTypes are two values that a field with this one does not take. The first is not even one of a number's.
func ofOtherTypes(value any) (any, any) {
	switch value.(type) {
	case string:
		return 7, fields{"a": 1}
	case bool:
		return "true", 0
	case map[string]any:
		return "text", []any{1}
	case []any:
		return fields{"a": 1}, "text"
	}
	return "7", 1.5
}

func askFields(ask func(string, func(*subjectMatter))) {
	ask("all there", func(m *subjectMatter) {
		m.full = true
		m.try("all", m.whole)
	})
	ask("left out", func(m *subjectMatter) {
		m.each(func(at place, value any, _ map[string]any) {
			if at.isKey() && !m.isRuled(at) {
				m.try("without "+at.String(), m.with(at, nil))
			}
		})
	})
	// A null of a typed kind is nothing; a custom resource has it for a value, unless there is a default.
	ask("null", func(m *subjectMatter) {
		m.each(func(at place, value any, _ map[string]any) {
			if !at.isKey() || m.isRuled(at) {
				return
			}
			o := m.with(at, nil)
			if m.subject {
				o = m.with(at, null{})
			}
			m.try("null "+at.String(), o)
		})
	})
	ask("of another type", func(m *subjectMatter) {
		m.each(func(at place, value any, schema map[string]any) {
			_, other := ofOtherTypes(value)
			a := m.do("POST", m.all()+"?dryRun=All", m.with(at, other), quiet)
			// A typed kind does not decode then (A/endpoints/handlers/create.go); a custom resource is not valid.
			outcome := strconv.Itoa(a.code)
			if a.code == http.StatusBadRequest || a.code == http.StatusUnprocessableEntity {
				outcome = "refused"
			}
			m.say("%s of %v: %v: %s", at, schema["type"], other, outcome)
		})
	})
	// What is applied is looked at by the schema alone, in the same words for both.
	ask("of another type applied", func(m *subjectMatter) {
		m.each(func(at place, value any, schema map[string]any) {
			other, _ := ofOtherTypes(value)
			others := []any{other}
			if object, isObject := value.(map[string]any); isObject && schema["properties"] != nil {
				others = append(others, with(object, "unknown", 1))
			}
			for _, other := range others {
				a := m.do("PATCH", m.one("a")+"?dryRun=All&fieldManager=m", m.with(at, other), contentType(apply), quiet)
				m.say("%s: %d %s", at, a.code, a.text("message"))
			}
		})
	})
	ask("beside unknown ones", func(m *subjectMatter) {
		m.each(func(at place, value any, schema map[string]any) {
			if object, isObject := value.(map[string]any); isObject && schema["properties"] != nil {
				o := m.with(at, with(object, "unknown", fields{"a": 1}))
				m.try("unknown in "+at.String(), o)
				m.strictly(o)
			}
		})
	})
	ask("given twice", func(m *subjectMatter) {
		m.each(func(at place, value any, _ map[string]any) {
			object, isObject := value.(map[string]any)
			if !isObject || len(object) == 0 {
				return
			}
			key := sortedKeys(object)[0]
			again, err := json.Marshal(fields{key: object[key]})
			if err != nil {
				panic(err)
			}
			text := string(encode(m.with(at, with(object, "twice~", 1))))
			o := strings.Replace(text, `"twice~":1`, string(again[1:len(again)-1]), 1)
			m.try("twice in "+at.String(), o)
			m.strictly(o)
		})
	})
	ask("with values that there are not", func(m *subjectMatter) {
		m.each(func(at place, value any, schema map[string]any) {
			text, isText := value.(string)
			if schema["enum"] == nil || !isText {
				return
			}
			for _, other := range []string{"", "other", strings.ToLower(text), strings.ToUpper(text)} {
				if other != text {
					m.try(fmt.Sprintf("%q for %s", other, at), m.with(at, other))
				}
			}
		})
	})
	ask("of lists twice", func(m *subjectMatter) {
		m.each(func(at place, value any, schema map[string]any) {
			list, isList := value.([]any)
			kind, _ := schema["x-kubernetes-list-type"].(string)
			if !isList || kind != "map" && kind != "set" {
				return
			}
			m.try(kind+" "+at.String(), m.with(at, append(slices.Clone(list), copied(list[0]))))
			keys, _ := schema["x-kubernetes-list-map-keys"].([]any)
			for _, key := range keys {
				m.try(fmt.Sprintf("%s without %s", at, key), m.with(append(slices.Clone(at), 0, key), nil))
			}
		})
	})
	ask("in YAML", func(m *subjectMatter) {
		// JSON is YAML.
		yaml := contentType("application/yaml")
		m.try("all", m.whole, yaml)
		m.try("unknown", m.with(place{"spec", "unknown"}, 1), yaml)
		twice := strings.Replace(string(encode(m.whole)), `"spec":{`, `"spec":{"unknown":1,"unknown":2,`, 1)
		m.try("twice", twice, yaml)
		m.strictly(twice, yaml)
	})
}

// askLists has two who apply the same lists, each with an item of their own.
func askLists(ask func(string, func(*subjectMatter))) {
	ask("applied by two", func(m *subjectMatter) {
		m.full, m.unordered = true, true
		lists := 0
		m.each(func(at place, value any, schema map[string]any) {
			list, isList := value.([]any)
			isInner := slices.ContainsFunc(at, func(part any) bool { _, isPosition := part.(int); return isPosition })
			if !isList || isInner || m.isRuled(at) {
				return
			}
			m.say("%s, %v", at, schema["x-kubernetes-list-type"])
			lists++
			suffix := fmt.Sprintf("a%d", lists)
			other := copied(list[0])
			switch item := other.(type) {
			case map[string]any:
				key := "name"
				if keys, _ := schema["x-kubernetes-list-map-keys"].([]any); len(keys) > 0 {
					key = keys[0].(string)
				}
				item[key] = "other"
			case string:
				other = strings.Replace("other "+item, "other dev.stoa.run", "dev.stoa.release", 1)
			}
			by := func(who, query string, items ...any) {
				var list any = items
				if len(items) == 0 {
					list = nil
				}
				o := with(m.with(at, list), "metadata.name", m.name(suffix))
				a := m.do("PATCH", m.one(suffix)+"?fieldManager="+who+query, o, contentType(apply), quiet)
				m.say("%s%s\n  %d\n  %s", who, query, a.code, m.body("application/json", a.body))
			}
			by("me", "", list[0])
			by("you", "", other)
			by("you", "&force=true", other)
			by("me", "", list[0], list[0])
			by("me", "")
		})
	})
}
