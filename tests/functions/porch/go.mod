// The client and the server of Porch's function evaluator, by Porch's own code.
module stoa.dev/tests/functions/porch

go 1.26.0

require (
	github.com/nephio-project/porch v1.5.3
	google.golang.org/grpc v1.72.0
)

require (
	golang.org/x/net v0.39.0 // indirect
	golang.org/x/sys v0.32.0 // indirect
	golang.org/x/text v0.24.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20250428153025-10db94c68c34 // indirect
	google.golang.org/protobuf v1.36.6 // indirect
)
