// The standin plays a renderer that goes wrong, for tests of the function-runner: the path of a request says how.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"

	"stoa.dev/function-runner/renderer/rendererpb"
)

type standin struct {
	rendererpb.UnimplementedRendererServer
}

func main() {
	listener, err := net.Listen("unix", "renderer.sock")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	rendererpb.RegisterRendererServer(server, standin{})
	fmt.Println("ready")
	log.Fatal(server.Serve(listener))
}

func (standin) Render(_ context.Context, request *rendererpb.RenderRequest) (*rendererpb.RenderResponse, error) {
	switch request.Path {
	case "sleep":
		time.Sleep(time.Hour)
	case "allocate":
		allocate()
	case "exit":
		os.Exit(3)
	case "probe":
		return &rendererpb.RenderResponse{Warnings: probe(request.Tree)}, nil
	}
	object := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: pid-" + fmt.Sprint(os.Getpid()) + "}\n"
	return &rendererpb.RenderResponse{
		Documents: []*rendererpb.Document{{Yaml: []byte(object), File: request.Path}},
		Version:   "standin v1",
	}, nil
}

func allocate() {
	var all [][]byte
	for {
		block := make([]byte, 1<<20)
		for at := range block {
			block[at] = 1
		}
		all = append(all, block)
		if len(all) > 1<<20 {
			return
		}
	}
}

// probe reaches for what a renderer must not have, and says what came of it.
func probe(tree string) []string {
	result := func(what string, err error) string {
		if err == nil {
			return what + ": done"
		}
		if os.IsPermission(err) {
			return what + ": denied"
		}
		return what + ": " + err.Error()
	}
	read := func(path string) error { _, err := os.ReadFile(path); return err }
	list := func(path string) error { _, err := os.ReadDir(path); return err }
	dial := func(network, address string) error { _, err := net.Dial(network, address); return err }
	listen := func(network, address string) error { _, err := net.Listen(network, address); return err }
	others := filepath.Dir(filepath.Dir(tree))
	var variables []string
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		variables = append(variables, name)
	}
	return []string{
		result("read of its tree", list(tree)),
		result("write to its tree", os.WriteFile(filepath.Join(tree, "new"), []byte("x"), 0o644)),
		result("write to its folder", os.WriteFile("new", nil, 0o644)),
		result("caches", list(others)),
		result("file outside", read("/etc/passwd")),
		result("link outside", read(filepath.Join(tree, "link"))),
		result("environment of its parent", read(fmt.Sprintf("/proc/%d/environ", os.Getppid()))),
		result("connection", dial("tcp", "127.0.0.1:80")),
		result("listener", listen("tcp", "127.0.0.1:0")),
		result("datagram", dial("udp", "127.0.0.1:53")),
		result("program", exec.Command("/bin/true").Run()),
		result("itself", exec.Command("/proc/self/exe").Run()),
		"environment: " + strings.Join(variables, " "),
	}
}
