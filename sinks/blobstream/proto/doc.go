// Package blobstreampb is the blob-stream broker's protocol, generated from
// blobstream.proto. The generated files are checked in, so that a build needs
// no generator. After a change of the .proto file, with protoc 3.21 or later,
// protoc-gen-go 1.36 and protoc-gen-go-grpc 1.6 on PATH, in this directory:
//
//	protoc --go_out=paths=source_relative:. --go-grpc_out=paths=source_relative:. blobstream.proto
package blobstreampb
