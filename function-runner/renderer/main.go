// The renderer builds kustomizations and charts, and executes Kalypso's templates, for a function-runner, with the libraries of these tools.
//
// Start at server.go. The runner starts it in a sandbox with one organization's trees, no network and no program, and speaks to it by
// the Unix socket in its working folder. kustomize.go, helm.go and templates.go call the libraries, tree.go has
// the files that they see.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"google.golang.org/grpc"

	"stoa.dev/function-runner/renderer/rendererpb"
)

// The socket, in the working folder.
const socket = "renderer.sock"

// The largest message: documents of 64 MiB, and their paths.
const largestMessage = 128 << 20

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--version" {
		fmt.Println(kustomizeVersion(), helmVersion())
		return
	}
	log.SetFlags(0)
	isolate()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatalf("listening: %v", err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(largestMessage), grpc.MaxSendMsgSize(largestMessage))
	rendererpb.RegisterRendererServer(server, &renderer{})
	fmt.Println("ready")
	if err := server.Serve(listener); err != nil {
		log.Fatalf("serving: %v", err)
	}
}

// isolate takes away what the libraries would reach beside the tree. The sandbox denies it too; here it has a clear message.
func isolate() {
	http.DefaultTransport = refusing{}
	os.Clearenv()
	// Kustomize finds no git program, and templates have one time zone.
	os.Setenv("PATH", "")
	os.Setenv("TZ", "UTC")
}

type refusing struct{}

func (refusing) RoundTrip(request *http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("%s is remote, and nothing is downloaded while a stack is rendered", request.URL.Redacted())
}
