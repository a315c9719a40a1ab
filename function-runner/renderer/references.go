package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"stoa.dev/function-runner/renderer/rendererpb"
)

// references reads the kustomizations of a build before it begins, so that a path that does not exist, leads out of the repository or
// is a URL has its file and line in the problem.
type references struct {
	tree *tree
	// The file of the first kustomization.
	root      string
	seen      map[string]bool
	hasSchema bool
	targets   []target
	problems  []*rendererpb.Problem
}

func newReferences(tree *tree) *references {
	return &references{tree: tree, seen: map[string]bool{}}
}

// The fields with paths, and what is there.
var (
	foldersOrFiles = []string{"resources", "bases", "components"}
	// Files, or YAML itself where there is a line break or a map.
	filesOrText = []string{"patchesStrategicMerge", "generators", "transformers", "validators", "crds", "configurations"}
	withPath    = []string{"patches", "patchesJson6902", "replacements"}
	withSources = []string{"configMapGenerator", "secretGenerator"}
)

// follow reads the kustomization in a folder, and those that it leads to. The folder is from the root of the tree.
func (r *references) follow(folder string) {
	file := ""
	for _, name := range kustomizations {
		if at := path.Join(folder, name); r.tree.Exists(path.Join(mount, at)) && file == "" {
			file = at
		}
	}
	if r.root == "" {
		r.root = file
	}
	if file == "" {
		if len(r.seen) == 0 {
			r.add(&wrong{file: folder, message: "has no kustomization.yaml"})
		}
		return
	}
	if r.seen[file] {
		return
	}
	r.seen[file] = true
	content, err := r.tree.ReadFile(path.Join(mount, file))
	if err != nil {
		r.add(located(err, file, 0))
		return
	}
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		r.add(syntax(file, err))
		return
	}
	if len(document.Content) == 0 || document.Content[0].Kind != yaml.MappingNode {
		// Kustomize has the better words for it.
		return
	}
	r.kustomization(folder, file, document.Content[0])
}

func (r *references) kustomization(folder, file string, fields *yaml.Node) {
	for _, name := range foldersOrFiles {
		r.each(fields, name, func(node *yaml.Node) {
			if at, isFolder := r.check(folder, file, node); isFolder {
				r.follow(at)
			}
		})
	}
	for _, name := range filesOrText {
		r.each(fields, name, func(node *yaml.Node) {
			if strings.ContainsAny(node.Value, "\n{") {
				return
			}
			// Plugins may be configured in folders with a kustomization.
			if at, isFolder := r.check(folder, file, node); isFolder {
				r.follow(at)
			}
		})
	}
	for _, name := range withPath {
		r.each(fields, name, func(node *yaml.Node) {
			if at := field(node, "path"); at != nil {
				r.check(folder, file, at)
			}
			r.noteTarget(file, node)
		})
	}
	for _, name := range withSources {
		r.each(fields, name, func(node *yaml.Node) {
			r.each(node, "files", func(source *yaml.Node) {
				value := source.Value
				if _, at, found := strings.Cut(value, "="); found {
					value = at
				}
				r.check(folder, file, &yaml.Node{Kind: yaml.ScalarNode, Value: value, Line: source.Line})
			})
			r.each(node, "envs", func(source *yaml.Node) { r.check(folder, file, source) })
			if source := field(node, "env"); source != nil && source.Kind == yaml.ScalarNode {
				r.check(folder, file, source)
			}
		})
	}
	if schema := field(fields, "openapi"); schema != nil {
		r.hasSchema = true
		if at := field(schema, "path"); at != nil {
			r.check(folder, file, at)
		}
	}
	r.hasSchema = r.hasSchema || field(fields, "crds") != nil
	for _, name := range []string{"helmCharts", "helmChartInflationGenerator"} {
		if charts := field(fields, name); charts != nil && len(charts.Content) > 0 {
			message := name + " is not supported; use a Stack of the chart with generator Helm"
			r.add(&wrong{file: file, line: charts.Line, message: message})
		}
	}
}

// check reports a path that is not in the tree. It returns the path from the root, and whether a folder is there.
func (r *references) check(folder, file string, node *yaml.Node) (string, bool) {
	name := node.Value
	if node.Kind != yaml.ScalarNode || name == "" {
		return "", false
	}
	at, err := join(folder, name)
	if err == nil {
		var info fs.FileInfo
		if _, info, err = r.tree.resolve(path.Join(mount, at)); err == nil {
			if isHTTP.MatchString(name) {
				r.remote(file, node)
				return "", false
			}
			return at, info.IsDir()
		}
	}
	if isRemote(name) {
		r.remote(file, node)
		return "", false
	}
	r.add(located(err, file, node.Line).naming(name))
	return "", false
}

func (r *references) remote(file string, node *yaml.Node) {
	message := fmt.Sprintf("%q is remote, and nothing is downloaded while a stack is rendered; commit a copy of it", withoutUserinfo(node.Value))
	r.add(&wrong{file: file, line: node.Line, message: message})
}

func (r *references) add(found *wrong) {
	r.problems = append(r.problems, problem("", found))
}

// naming adds the path that a file names.
func (w *wrong) naming(name string) *wrong {
	if !strings.HasPrefix(w.message, fmt.Sprintf("%q", name)) {
		w.message = fmt.Sprintf("%q %s", name, w.message)
	}
	return w
}

// located is an error of the tree as a problem of the line that named the path.
func located(err error, file string, line int) *wrong {
	var found *wrong
	var of *fs.PathError
	switch {
	case errors.As(err, &found):
		return &wrong{file: file, line: line, message: found.message, tooLarge: found.tooLarge}
	case errors.Is(err, fs.ErrNotExist):
		return &wrong{file: file, line: line, message: "does not exist"}
	case errors.As(err, &of):
		return &wrong{file: file, line: line, message: of.Err.Error()}
	default:
		return &wrong{file: file, line: line, message: err.Error()}
	}
}

var lineOfError = regexp.MustCompile(`line (\d+): `)

// syntax is an error of the YAML library.
func syntax(file string, err error) *wrong {
	found := &wrong{file: file, message: err.Error()}
	if line := lineOfError.FindStringSubmatch(found.message); line != nil {
		fmt.Sscan(line[1], &found.line)
	}
	return found
}

var (
	isHTTP = regexp.MustCompile(`^https?://`)
	// Other schemes, logins, and hosts as Kustomize guesses them.
	isURL = regexp.MustCompile(`^([a-z][a-z0-9+.-]*::?//|git::|[^/]+@[^/]+:|(github|gitlab|bitbucket)\.(com|org)[:/])|\?(ref|version)=|\.git(/|$)|//`)
	login = regexp.MustCompile(`//[^/@]*@`)
)

func isRemote(name string) bool { return isHTTP.MatchString(name) || isURL.MatchString(name) }

func withoutUserinfo(url string) string { return login.ReplaceAllString(url, "//") }

// field is the value of a map's field.
func field(fields *yaml.Node, name string) *yaml.Node {
	if fields == nil || fields.Kind != yaml.MappingNode {
		return nil
	}
	for at := 0; at+1 < len(fields.Content); at += 2 {
		if fields.Content[at].Value == name {
			return deref(fields.Content[at+1])
		}
	}
	return nil
}

func deref(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// each calls for the items of a list.
func (r *references) each(fields *yaml.Node, name string, item func(*yaml.Node)) {
	list := field(fields, name)
	if list == nil || list.Kind != yaml.SequenceNode {
		return
	}
	for _, node := range list.Content {
		item(deref(node))
	}
}
