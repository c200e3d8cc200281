// Serves the task drivers that are built into Nomad's agent as plugins.
//
//	nomad-driver raw_exec|exec|java|docker|mock_driver|qemu
package main

import (
	"context"
	"fmt"
	"os"

	// The init functions of these packages turn this program into the helper process named by its first argument.
	_ "github.com/hashicorp/nomad/drivers/docker/docklog"
	_ "github.com/hashicorp/nomad/drivers/shared/executor"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/drivers/docker"
	"github.com/hashicorp/nomad/drivers/exec"
	"github.com/hashicorp/nomad/drivers/java"
	"github.com/hashicorp/nomad/drivers/mock"
	"github.com/hashicorp/nomad/drivers/rawexec"
	"github.com/hashicorp/nomad/plugins"
)

var drivers = map[string]plugins.PluginCtxFactory{
	"raw_exec": func(ctx context.Context, log hclog.Logger) any { return rawexec.NewRawExecDriver(ctx, log) },
	"exec":     func(ctx context.Context, log hclog.Logger) any { return exec.NewExecDriver(ctx, log) },
	"java":     func(ctx context.Context, log hclog.Logger) any { return java.NewDriver(ctx, log) },
	"docker":   func(ctx context.Context, log hclog.Logger) any { return docker.NewDockerDriver(ctx, log) },
	"mock":     func(ctx context.Context, log hclog.Logger) any { return mock.NewMockDriver(ctx, log) },
}

func main() {
	if len(os.Args) == 2 {
		if factory, found := drivers[os.Args[1]]; found {
			plugins.ServeCtx(factory)
			return
		}
	}
	fmt.Fprintln(os.Stderr, "usage: nomad-driver raw_exec|exec|java|docker|mock")
	os.Exit(2)
}
