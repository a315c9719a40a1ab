package main

import (
	"path"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"stoa.dev/function-runner/renderer/rendererpb"
)

// The value that a schema refuses, as the library names it: "- at '/image/tag': got number, want string".
var refusedValue = regexp.MustCompile(`(?m)at '(/[^']*)'`)

// ofSchema is an error of a schema, with the file and the line of the value that it refuses.
func ofSchema(tree *tree, folder string, request *rendererpb.Helm, err error) error {
	found := &wrong{file: path.Join(folder, "values.yaml"), message: err.Error()}
	refused := refusedValue.FindStringSubmatch(found.message)
	if refused == nil {
		return found
	}
	pointer := strings.Split(strings.TrimPrefix(refused[1], "/"), "/")
	files := []string{found.file}
	for _, name := range request.ValuesFiles {
		if file, err := join(folder, name); err == nil {
			files = append(files, file)
		}
	}
	// The strongest file that sets the value; a missing one has the line of the map around it.
	for depth := len(pointer); depth > 0; depth-- {
		for at := len(files) - 1; at >= 0; at-- {
			if line := lineOf(tree, files[at], pointer[:depth]); line > 0 {
				return &wrong{file: files[at], line: line, message: found.message}
			}
		}
	}
	return found
}

// lineOf is the line of a value in a file, or 0.
func lineOf(tree *tree, file string, pointer []string) int {
	content, err := tree.ReadFile(path.Join(mount, file))
	if err != nil {
		return 0
	}
	var document yaml.Node
	if yaml.Unmarshal(content, &document) != nil || len(document.Content) != 1 {
		return 0
	}
	at, line := document.Content[0], 0
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for _, part := range pointer {
		if at.Kind == yaml.AliasNode {
			at = at.Alias
		}
		var next *yaml.Node
		switch at.Kind {
		case yaml.MappingNode:
			name := unescape.Replace(part)
			for key := 0; key+1 < len(at.Content); key += 2 {
				if at.Content[key].Value == name {
					next, line = at.Content[key+1], at.Content[key].Line
				}
			}
		case yaml.SequenceNode:
			if index, err := strconv.Atoi(part); err == nil && index >= 0 && index < len(at.Content) {
				next = at.Content[index]
				line = next.Line
			}
		}
		if next == nil {
			return 0
		}
		at = next
	}
	return line
}
