// A plugin host that uses HashiCorp's plugin library, like Nomad's agent: it loads a driver and runs a task.
//
//	MUSTER_PROTO_DIR=<tree>/proto go-driver host [tls] PATH PACKED-CONFIG PACKED-TASK-CONFIG
//
// Prints a line of JSON for each step.
package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

type connection struct{ plugin.NetRPCUnsupportedPlugin }

func (connection) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error { return nil }
func (connection) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

func say(step string, value any) {
	line, err := json.Marshal(map[string]any{"step": step, "value": value})
	must(err)
	fmt.Println(string(line))
}

func sayMessage(step string, m message) { say(step, json.RawMessage(protojson.Format(m))) }

func method(name protoreflect.Name) protoreflect.MethodDescriptor {
	for _, service := range []protoreflect.ServiceDescriptor{base.Services().Get(0), drivers.Services().Get(0)} {
		if found := service.Methods().ByName(name); found != nil {
			return found
		}
	}
	panic("no method " + name)
}

func call(conn *grpc.ClientConn, name protoreflect.Name, fill func(request message)) (message, error) {
	m := method(name)
	request, answer := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	fill(request)
	path := fmt.Sprintf("/%s/%s", m.Parent().FullName(), name)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return answer, conn.Invoke(ctx, path, request, answer)
}

func nothing(message) {}

func host(args []string) {
	useTLS := args[0] == "tls"
	if useTLS {
		args = args[1:]
	}
	config, err := hex.DecodeString(args[1])
	must(err)
	taskConfig, err := hex.DecodeString(args[2])
	must(err)
	var logs, printed bytes.Buffer
	options := &plugin.ClientConfig{
		HandshakeConfig: plugin.HandshakeConfig{ProtocolVersion: 2, MagicCookieKey: "NOMAD_PLUGIN_MAGIC_COOKIE",
			MagicCookieValue: "e4327c2e01eabfd75a8a67adb114fb34a757d57eee7728d857a8cec6e91a7255"},
		Plugins:          plugin.PluginSet{"conn": connection{}},
		Cmd:              exec.Command(args[0]),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         useTLS,
		SyncStdout:       &printed,
		Logger:           hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: &logs, JSONFormat: true}),
	}
	client := plugin.NewClient(options)
	protocol, err := client.Client()
	must(err)
	must(protocol.Ping())
	raw, err := protocol.Dispense("conn")
	must(err)
	conn := raw.(*grpc.ClientConn)

	info, err := call(conn, "PluginInfo", nothing)
	must(err)
	sayMessage("info", info)
	_, err = call(conn, "SetConfig", func(request message) { set(request, "msgpack_config", config) })
	must(err)
	_, err = call(conn, "Init", nothing)
	must(err)
	schema, err := call(conn, "TaskConfigSchema", nothing)
	must(err)
	say("schema", schema.Has(field(schema, "spec")))

	if !useTLS {
		// A second client on the same socket, like that of a restarted agent.
		again := plugin.NewClient(&plugin.ClientConfig{HandshakeConfig: options.HandshakeConfig, Plugins: options.Plugins,
			AllowedProtocols: options.AllowedProtocols, Reattach: client.ReattachConfig(), Logger: options.Logger})
		protocol, err := again.Client()
		must(err)
		must(protocol.Ping())
		raw, err := protocol.Dispense("conn")
		must(err)
		conn = raw.(*grpc.ClientConn)
		say("reattached", true)
	}

	stream, err := conn.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true},
		"/hashicorp.nomad.plugins.drivers.proto.Driver/Fingerprint")
	must(err)
	must(stream.SendMsg(in(drivers, "FingerprintRequest")))
	must(stream.CloseSend())
	fingerprint := in(drivers, "FingerprintResponse")
	must(stream.RecvMsg(fingerprint))
	sayMessage("fingerprint", fingerprint)

	id := "alloc/web/1"
	started, err := call(conn, "StartTask", func(request message) {
		task := sub(request, "task")
		set(task, "id", id)
		set(task, "name", "web")
		set(task, "msgpack_driver_config", taskConfig)
	})
	must(err)
	sayMessage("handle", get(started, "handle").Message().Interface().(message))
	_, err = call(conn, "StartTask", func(request message) { set(sub(request, "task"), "id", id) })
	say("again", err.Error())
	waited, err := call(conn, "WaitTask", func(request message) { set(request, "task_id", id) })
	must(err)
	sayMessage("exit", waited)
	inspected, err := call(conn, "InspectTask", func(request message) { set(request, "task_id", id) })
	must(err)
	sayMessage("inspected", inspected)
	_, err = call(conn, "DestroyTask", func(request message) { set(request, "task_id", id) })
	must(err)
	_, err = call(conn, "WaitTask", func(request message) { set(request, "task_id", id) })
	say("unknown", err.Error())

	before := time.Now()
	client.Kill()
	say("ended", map[string]any{"exited": client.Exited(), "ms": time.Since(before).Milliseconds(),
		"forced": bytes.Contains(logs.Bytes(), []byte("failed to exit gracefully"))})
	say("logged", bytes.Contains(logs.Bytes(), []byte(`"@message":"serving"`)))
	os.Exit(0)
}
