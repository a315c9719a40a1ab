// Porch's own code of the function evaluator: a client, and a server with one function.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	pb "github.com/nephio-project/porch/func/evaluator"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// `client ADDRESS IMAGE` runs a function on standard input. `server` has the function `example.com/porch/upper`.
func main() {
	var err error
	switch os.Args[1] {
	case "client":
		err = client(os.Args[2], os.Args[3])
	case "server":
		err = serve()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func client(address, image string) error {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	checked, err := healthpb.NewHealthClient(connection).Check(context.Background(), &healthpb.HealthCheckRequest{})
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, checked.Status)
	list, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	answer, err := pb.NewFunctionEvaluatorClient(connection).EvaluateFunction(context.Background(),
		&pb.EvaluateFunctionRequest{ResourceList: list, Image: image})
	if err != nil {
		return err
	}
	fmt.Fprint(os.Stderr, string(answer.Log))
	_, err = os.Stdout.Write(answer.ResourceList)
	return err
}

type evaluator struct {
	pb.UnimplementedFunctionEvaluatorServer
}

func (evaluator) EvaluateFunction(_ context.Context, request *pb.EvaluateFunctionRequest) (*pb.EvaluateFunctionResponse, error) {
	switch request.Image {
	case "example.com/porch/upper":
		list := strings.ReplaceAll(string(request.ResourceList), "team: none", "team: NONE")
		return &pb.EvaluateFunctionResponse{ResourceList: []byte(list), Log: []byte("upper\n")}, nil
	case "example.com/porch/fails":
		// The words and the code of Porch's evaluators.
		return nil, status.Errorf(codes.Internal, "Failed to execute function %q: %s (%s)", request.Image, "exit status 1", "no team")
	}
	return nil, status.Errorf(codes.NotFound, "function %q not found", request.Image)
}

// serve prints its address, and ends with its standard input.
func serve() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	server := grpc.NewServer()
	pb.RegisterFunctionEvaluatorServer(server, evaluator{})
	healthpb.RegisterHealthServer(server, health.NewServer())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		server.Stop()
	}()
	return server.Serve(listener)
}
