package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"sigs.k8s.io/kustomize/kyaml/filesys"

	"stoa.dev/function-runner/renderer/rendererpb"
)

// The path at which the libraries see the tree. A path that leads out of the tree leads out of this folder, where nothing is.
const mount = "/repository"

// The largest file, in bytes. Helm has this limit for a chart's files; the runner writes larger ones without content.
const largestFile = 5 << 20

// The most symbolic links on the way to a file.
const mostLinks = 40

var errReadOnly = errors.New("the tree is read-only")

// tree is the files of a commit, as a file system of Kustomize. A tree never changes.
type tree struct {
	root *os.Root
	// Entries that were seen, by their path from the root, without following links.
	entries map[string]entry
	read    map[string]bool
	// Files with another content than in the tree, by their paths from the root.
	replaced map[string][]byte
	// Whether to note files that SOPS encrypted, and those files.
	notesEncrypted bool
	encrypted      map[string][]byte
	// Changes the content of a file by its path from the root, if it is set.
	change func(file string, content []byte) ([]byte, error)
}

type entry struct {
	info   fs.FileInfo
	target string
	err    error
}

var _ filesys.FileSystem = (*tree)(nil)

func newTree(root *os.Root) *tree {
	return &tree{root: root, entries: map[string]entry{}, read: map[string]bool{}, encrypted: map[string][]byte{}}
}

// isEncrypted is whether SOPS may have encrypted a file.
func isEncrypted(content []byte) bool {
	return bytes.Contains(content, []byte("sops")) && bytes.Contains(content, []byte("ENC[AES256_GCM,"))
}

// filesEncrypted are the files that SOPS encrypted among those that were read, sorted.
func (t *tree) filesEncrypted() []*rendererpb.File {
	var files []*rendererpb.File
	for file, content := range t.encrypted {
		files = append(files, &rendererpb.File{Path: file, Content: content})
	}
	sort.Slice(files, func(a, b int) bool { return files[a].Path < files[b].Path })
	return files
}

// filesRead has the paths of all files that were read, from the root, sorted.
func (t *tree) filesRead() []string {
	var files []string
	for file := range t.read {
		files = append(files, file)
	}
	sort.Strings(files)
	return files
}

// join is the path that a path means in a folder; both are from the root, and so is the result.
func join(folder, name string) (string, error) {
	joined := path.Join("/", mount, folder, name)
	if path.IsAbs(name) {
		return "", &wrong{message: fmt.Sprintf("%q is an absolute path; use a path in the repository", name)}
	}
	return inside(joined)
}

// inside is the path from the root of a path that the libraries use.
func inside(name string) (string, error) {
	name = path.Clean(name)
	if name == mount {
		return ".", nil
	}
	if rest, ok := strings.CutPrefix(name, mount+"/"); ok {
		return rest, nil
	}
	return "", &fs.PathError{Op: "open", Path: name, Err: errOutside}
}

var errOutside = errors.New("leads out of the repository")

func (t *tree) entry(name string) entry {
	if found, ok := t.entries[name]; ok {
		return found
	}
	var found entry
	found.info, found.err = t.root.Lstat(name)
	if found.err == nil && found.info.Mode()&fs.ModeSymlink != 0 {
		found.target, found.err = t.root.Readlink(name)
	}
	t.entries[name] = found
	return found
}

// resolve follows links, as far as they stay inside. The result is a path from the root.
func (t *tree) resolve(name string) (string, fs.FileInfo, error) {
	rest, err := inside(name)
	if err != nil {
		return "", nil, err
	}
	at, links := ".", 0
	info := t.entry(".").info
	parts := strings.Split(rest, "/")
	for len(parts) > 0 {
		part := parts[0]
		parts = parts[1:]
		if part == "." || part == "" {
			continue
		}
		next := path.Join(at, part)
		found := t.entry(next)
		if found.err != nil {
			return "", nil, &fs.PathError{Op: "open", Path: name, Err: cause(found.err)}
		}
		if found.info.Mode()&fs.ModeSymlink == 0 {
			at, info = next, found.info
			continue
		}
		links++
		if links > mostLinks {
			return "", nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("too many symbolic links")}
		}
		// An absolute target leads to a file of some machine.
		target := path.Join(mount, at, found.target)
		if path.IsAbs(found.target) {
			target = found.target
		}
		if rest, err = inside(target); err != nil {
			message := fmt.Sprintf("is a symbolic link to %q, which leads out of the repository", found.target)
			return "", nil, &wrong{file: next, message: message}
		}
		parts = append(strings.Split(rest, "/"), parts...)
		at, info = ".", t.entry(".").info
	}
	return at, info, nil
}

func cause(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

func (t *tree) stat(name string) (fs.FileInfo, error) {
	_, info, err := t.resolve(name)
	return info, err
}

// CleanedAbs is the folder of a path, and the name of its file, without links.
func (t *tree) CleanedAbs(name string) (filesys.ConfirmedDir, string, error) {
	at, info, err := t.resolve(absolute(name))
	if err != nil {
		return "", "", fmt.Errorf("%q: %w", name, err)
	}
	full := path.Join(mount, at)
	if info.IsDir() {
		return filesys.ConfirmedDir(full), "", nil
	}
	return filesys.ConfirmedDir(path.Dir(full)), path.Base(full), nil
}

func absolute(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(mount, name)
}

func (t *tree) Exists(name string) bool {
	_, err := t.stat(absolute(name))
	return err == nil
}

func (t *tree) IsDir(name string) bool {
	info, err := t.stat(absolute(name))
	return err == nil && info.IsDir()
}

func (t *tree) ReadDir(name string) ([]string, error) {
	at, _, err := t.resolve(absolute(name))
	if err != nil {
		return nil, err
	}
	folder, err := t.root.Open(at)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: cause(err)}
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	sort.Strings(names)
	return names, err
}

func (t *tree) ReadFile(name string) ([]byte, error) {
	at, info, err := t.resolve(absolute(name))
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("is a directory")}
	}
	if info.Size() > largestFile {
		message := fmt.Sprintf("is larger than %d MiB", largestFile>>20)
		return nil, &wrong{file: at, message: message, tooLarge: true}
	}
	file, err := t.root.Open(at)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: cause(err)}
	}
	defer file.Close()
	content := make([]byte, info.Size())
	if _, err := io.ReadFull(file, content); err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	t.read[at] = true
	if replaced, ok := t.replaced[at]; ok {
		content = bytes.Clone(replaced)
	} else if t.notesEncrypted && isEncrypted(content) {
		t.encrypted[at] = bytes.Clone(content)
	}
	if t.change != nil {
		return t.change(at, content)
	}
	return content, nil
}

func (t *tree) Glob(pattern string) ([]string, error) {
	folder := path.Dir(absolute(pattern))
	names, err := t.ReadDir(folder)
	if err != nil {
		return nil, nil
	}
	var found []string
	for _, name := range names {
		if ok, err := path.Match(path.Base(pattern), name); err != nil {
			return nil, err
		} else if ok {
			found = append(found, path.Join(folder, name))
		}
	}
	if filesys.IsHiddenFilePath(pattern) {
		return found, nil
	}
	return filesys.RemoveHiddenFiles(found), nil
}

func (t *tree) Walk(name string, walk filepath.WalkFunc) error {
	info, err := t.stat(absolute(name))
	if err != nil {
		return walk(name, nil, err)
	}
	return t.walk(absolute(name), info, walk, 0)
}

// The deepest folder of a walk. A link to a folder around it has no end.
const deepest = 64

func (t *tree) walk(name string, info fs.FileInfo, walk filepath.WalkFunc, depth int) error {
	if depth > deepest {
		return fmt.Errorf("%s: more than %d levels of folders", name, deepest)
	}
	if err := walk(name, info, nil); err != nil || !info.IsDir() {
		if errors.Is(err, filepath.SkipDir) && info.IsDir() {
			return nil
		}
		return err
	}
	names, err := t.ReadDir(name)
	if err != nil {
		return err
	}
	for _, each := range names {
		below := path.Join(name, each)
		info, err := t.stat(below)
		if err != nil {
			return err
		}
		if err := t.walk(below, info, walk, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// Open has the content of a file.
func (t *tree) Open(name string) (filesys.File, error) {
	content, err := t.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return &readOnly{Reader: strings.NewReader(string(content)), name: path.Base(name)}, nil
}

func (t *tree) Create(string) (filesys.File, error) { return nil, errReadOnly }
func (t *tree) Mkdir(string) error                  { return errReadOnly }
func (t *tree) MkdirAll(string) error               { return errReadOnly }
func (t *tree) RemoveAll(string) error              { return errReadOnly }
func (t *tree) WriteFile(string, []byte) error      { return errReadOnly }

type readOnly struct {
	*strings.Reader
	name string
}

func (f *readOnly) Write([]byte) (int, error)  { return 0, errReadOnly }
func (f *readOnly) Close() error               { return nil }
func (f *readOnly) Stat() (os.FileInfo, error) { return f, nil }
func (f *readOnly) Name() string               { return f.name }
func (f *readOnly) Mode() fs.FileMode          { return 0o444 }
func (f *readOnly) ModTime() time.Time         { return time.Time{} }
func (f *readOnly) IsDir() bool                { return false }
func (f *readOnly) Sys() any                   { return nil }
