package main

import (
	"context"
	"fmt"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// The messages of function-runner/kusion-module/proto/module.proto. The library encodes them by the tags of their fields.

type generatorRequest struct {
	Project        string `protobuf:"bytes,1,opt,name=project,proto3"`
	Stack          string `protobuf:"bytes,2,opt,name=stack,proto3"`
	App            string `protobuf:"bytes,3,opt,name=app,proto3"`
	Workload       []byte `protobuf:"bytes,4,opt,name=workload,proto3"`
	DevConfig      []byte `protobuf:"bytes,5,opt,name=dev_config,json=devConfig,proto3"`
	PlatformConfig []byte `protobuf:"bytes,6,opt,name=platform_config,json=platformConfig,proto3"`
	Context        []byte `protobuf:"bytes,7,opt,name=context,proto3"`
	SecretStore    []byte `protobuf:"bytes,8,opt,name=secret_store,json=secretStore,proto3"`
}

func (r *generatorRequest) Reset()         { *r = generatorRequest{} }
func (r *generatorRequest) String() string { return fmt.Sprintf("%s/%s/%s", r.Project, r.Stack, r.App) }
func (r *generatorRequest) ProtoMessage()  {}

type generatorResponse struct {
	Resources [][]byte `protobuf:"bytes,1,rep,name=resources,proto3"`
	Patcher   []byte   `protobuf:"bytes,2,opt,name=patcher,proto3"`
}

func (r *generatorResponse) Reset()         { *r = generatorResponse{} }
func (r *generatorResponse) String() string { return fmt.Sprintf("%d resources", len(r.Resources)) }
func (r *generatorResponse) ProtoMessage()  {}

type generator interface {
	Generate(context.Context, *generatorRequest) (*generatorResponse, error)
}

var service = grpc.ServiceDesc{
	ServiceName: "Module",
	HandlerType: (*generator)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Generate",
		Handler: func(server any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			request := new(generatorRequest)
			if err := decode(request); err != nil {
				return nil, err
			}
			return server.(generator).Generate(ctx, request)
		},
	}},
	Metadata: "module.proto",
}

// kusionPlugin connects the library to the service.
type kusionPlugin struct {
	plugin.Plugin
}

func (kusionPlugin) GRPCServer(_ *plugin.GRPCBroker, server *grpc.Server) error {
	server.RegisterService(&service, module{})
	return nil
}

func (kusionPlugin) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, nil
}

// serve answers calls until the runner ends the process.
func serve() {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: plugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: "MODULE_PLUGIN", MagicCookieValue: "ON"},
		Plugins:         map[string]plugin.Plugin{"module-default": kusionPlugin{}},
		GRPCServer:      plugin.DefaultGRPCServer,
	})
}
