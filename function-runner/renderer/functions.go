package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"github.com/mitchellh/hashstructure"
	"gopkg.in/yaml.v3"
	"stoa.dev/xstrings"
)

// The functions that would read this machine.
var readsMachine = []string{"env", "expandenv", "getHostByName"}

// The functions of sprig v2 that give another value each time, beside those of Helm's. The ones of dates take a text for now.
var moreVolatileFunctions = []string{"date", "date_in_zone", "dateInZone", "htmlDate", "htmlDateInZone"}

// functions are those of Kalypso's templates: sprig's, and its own over them.
type functions struct {
	all template.FuncMap
	// Names of functions, called since the last reset, that give another value each time.
	volatile map[string]bool
}

// newFunctions bounds what some functions make at once. Others grow no faster than their input.
func newFunctions(limit int) *functions {
	f := &functions{all: sprig.TxtFuncMap(), volatile: map[string]bool{}}
	for _, name := range readsMachine {
		delete(f.all, name)
	}
	for _, name := range append(append([]string{}, volatileFunctions...), moreVolatileFunctions...) {
		if function, isThere := f.all[name]; isThere {
			f.all[name] = f.noted(name, function)
		}
	}
	for name, function := range f.bounded(limit) {
		f.all[name] = function
	}
	for name, function := range kalypsoFunctions {
		f.all[name] = function
	}
	return f
}

// noted is a function whose calls are noted.
func (f *functions) noted(name string, function any) any {
	original := reflect.ValueOf(function)
	return reflect.MakeFunc(original.Type(), func(arguments []reflect.Value) []reflect.Value {
		f.volatile[name] = true
		if original.Type().IsVariadic() {
			return original.CallSlice(arguments)
		}
		return original.Call(arguments)
	}).Interface()
}

func (f *functions) reset() { clear(f.volatile) }

// used are the called functions that give another value each time, sorted.
func (f *functions) used() []string {
	var names []string
	for name := range f.volatile {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// bounded are functions of sprig that a short template makes gigabytes with.
func (f *functions) bounded(limit int) template.FuncMap {
	until := f.all["until"].(func(int) []int)
	untilStep := f.all["untilStep"].(func(int, int, int) []int)
	return template.FuncMap{
		"repeat": func(count int, text string) (string, error) {
			if count < 0 || len(text) > 0 && count > limit/len(text) {
				return "", fmt.Errorf("repeat of %d bytes %d times: %w", len(text), count, errTooLarge)
			}
			return strings.Repeat(text, count), nil
		},
		"until": func(count int) ([]int, error) {
			if count > limit || count < -limit {
				return nil, fmt.Errorf("until %d: %w", count, errTooLarge)
			}
			return until(count), nil
		},
		"untilStep": func(start, stop, step int) ([]int, error) {
			if step != 0 && (float64(stop)-float64(start))/float64(step) > float64(limit) {
				return nil, fmt.Errorf("untilStep %d %d %d: %w", start, stop, step, errTooLarge)
			}
			return untilStep(start, stop, step), nil
		},
	}
}

// kalypsoFunctions are Kalypso's own, and sprig's that would not be what they are there.
var kalypsoFunctions = template.FuncMap{
	"toYaml":    toYaml,
	"stringify": stringify,
	"hash":      hash,
	"unquote":   unquote,
	// Kalypso links v1.4.0. Helm brings v1.5.0, which gives other texts.
	"camelcase": xstrings.ToCamelCase,
	"keys":      keys,
	"values":    valuesOf,
}

// toYaml is a value as yaml.v3 writes it, less one line break; empty when it cannot.
func toYaml(value interface{}) string {
	data, err := yaml.Marshal(value)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(data), "\n")
}

// stringify is toYaml of a map whose own maps and lists are texts of YAML. Those of Kalypso's config data are of a type that it
// misses, and meant nevertheless.
func stringify(value interface{}) string {
	given, isMap := value.(map[string]interface{})
	if !isMap {
		return toYaml(value)
	}
	texts := make(map[string]interface{}, len(given))
	for key, value := range given {
		texts[key] = value
		switch value.(type) {
		case map[string]interface{}, []interface{}:
			data, err := yaml.Marshal(value)
			if err != nil {
				return ""
			}
			texts[key] = string(data)
		}
	}
	return toYaml(texts)
}

// hash is a value's hash as a decimal number.
func hash(value interface{}) string {
	number, err := hashstructure.Hash(value, nil)
	if err != nil {
		return ""
	}
	return strconv.FormatUint(number, 10)
}

// unquote is a text without the white space and the quotes around it.
func unquote(value interface{}) string {
	text, isText := value.(string)
	if !isText {
		return ""
	}
	return strings.Trim(strings.Trim(strings.TrimSpace(text), "\""), "'")
}

// keys and valuesOf are sprig's in the order of the keys, of which it takes a random one.
func keys(maps ...map[string]interface{}) []string {
	all := []string{}
	for _, of := range maps {
		names := make([]string, 0, len(of))
		for name := range of {
			names = append(names, name)
		}
		sort.Strings(names)
		all = append(all, names...)
	}
	return all
}

func valuesOf(of map[string]interface{}) []interface{} {
	all := []interface{}{}
	for _, name := range keys(of) {
		all = append(all, of[name])
	}
	return all
}

// decodeConfig reads the config data of templates.
func decodeConfig(text []byte) (map[string]interface{}, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	config := map[string]interface{}{}
	if err := decoder.Decode(&config); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for key, value := range config {
		config[key] = withNumbers(value)
	}
	return config, nil
}

// withNumbers has the numbers that Kalypso's decoder of YAML makes: int, uint64 beyond it, and float64.
func withNumbers(value interface{}) interface{} {
	switch value := value.(type) {
	case json.Number:
		return number(value.String())
	case map[string]interface{}:
		for key, item := range value {
			value[key] = withNumbers(item)
		}
	case []interface{}:
		for at, item := range value {
			value[at] = withNumbers(item)
		}
	}
	return value
}

func number(text string) interface{} {
	if !strings.ContainsAny(text, ".eE") {
		if whole, err := strconv.ParseInt(text, 10, 64); err == nil {
			return int(whole)
		}
		if whole, err := strconv.ParseUint(text, 10, 64); err == nil {
			return whole
		}
	}
	float, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.Inf(1)
	}
	return float
}
