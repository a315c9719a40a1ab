package main

import (
	"reflect"
	"sort"
	"text/template"

	"github.com/Masterminds/sprig/v3"
)

// The functions of templates that give another value each time.
var volatileFunctions = []string{
	"now", "ago", "randAlphaNum", "randAlpha", "randAscii", "randNumeric",
	"randBytes", "randInt", "uuidv4", "shuffle", "genPrivateKey", "genCA", "genCAWithKey", "genSelfSignedCert",
	"genSelfSignedCertWithKey", "genSignedCert", "genSignedCertWithKey", "encryptAES", "bcrypt", "htpasswd",
}

// volatile notes which of these functions templates call.
type volatile struct {
	functions template.FuncMap
	used      map[string]bool
}

func newVolatile() *volatile {
	v := &volatile{functions: template.FuncMap{}, used: map[string]bool{}}
	all := sprig.TxtFuncMap()
	for _, name := range volatileFunctions {
		function, isThere := all[name]
		if !isThere {
			continue
		}
		original := reflect.ValueOf(function)
		v.functions[name] = reflect.MakeFunc(original.Type(), func(arguments []reflect.Value) []reflect.Value {
			v.used[name] = true
			if original.Type().IsVariadic() {
				return original.CallSlice(arguments)
			}
			return original.Call(arguments)
		}).Interface()
	}
	return v
}

func (v *volatile) names() []string {
	var names []string
	for name := range v.used {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
