// Runs Nomad's test kit for authors of task drivers against a plugin's executable.
//
//	KIT_DRIVER='["PATH", "ARG"…]' KIT_TASK='{"command": "sleep", …}' kit -test.v
//
// KIT_CONFIG is the configuration of the driver, KIT_USER the user of the task.
package kit

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hcldec"
	hcljson "github.com/hashicorp/hcl/v2/json"
	"github.com/hashicorp/nomad/helper/pluginutils/hclspecutils"
	"github.com/hashicorp/nomad/helper/pluginutils/hclutils"
	"github.com/hashicorp/nomad/helper/testlog"
	"github.com/hashicorp/nomad/helper/uuid"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/hashicorp/nomad/plugins/drivers/testutils"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"
	"github.com/shoenig/test/must"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/msgpack"
)

// value decodes a configuration in JSON by its schema.
func value(t *testing.T, spec *hclspec.Spec, text string) cty.Value {
	decoder, problems := hclspecutils.Convert(spec)
	must.False(t, problems.HasErrors())
	file, problems := hcljson.Parse([]byte(text), "config.json")
	must.False(t, problems.HasErrors(), must.Sprint(problems))
	found, problems := hcldec.Decode(file.Body, decoder, &hcl.EvalContext{Functions: hclutils.GetStdlibFuncs()})
	must.False(t, problems.HasErrors(), must.Sprint(problems))
	return found
}

// started returns the plugin, configured like Nomad's agent does.
func started(t *testing.T) drivers.DriverPlugin {
	var command []string
	must.NoError(t, json.Unmarshal([]byte(os.Getenv("KIT_DRIVER")), &command))
	logger := testlog.HCLogger(t)
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig: base.Handshake,
		Plugins: map[string]plugin.Plugin{
			base.PluginTypeBase:   &base.PluginBase{},
			base.PluginTypeDriver: drivers.NewDriverPlugin(nil, logger),
		},
		Cmd:              exec.Command(command[0], command[1:]...),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger:           logger,
		StartTimeout:     time.Minute,
	})
	t.Cleanup(client.Kill)
	connection, err := client.Client()
	must.NoError(t, err)
	dispensed, err := connection.Dispense(base.PluginTypeDriver)
	must.NoError(t, err)
	driver := dispensed.(drivers.DriverPlugin)
	spec, err := driver.ConfigSchema()
	must.NoError(t, err)
	config := &base.Config{ApiVersion: drivers.ApiVersion010}
	if text := os.Getenv("KIT_CONFIG"); text != "" {
		given := value(t, spec, text)
		config.PluginConfig, err = msgpack.Marshal(given, given.Type())
		must.NoError(t, err)
	}
	must.NoError(t, driver.SetConfig(config))
	return driver
}

func TestExecStreaming(t *testing.T) {
	driver := started(t)
	harness := testutils.NewDriverHarness(t, driver)
	defer harness.Kill()
	spec, err := driver.TaskConfigSchema()
	must.NoError(t, err)
	task := &drivers.TaskConfig{
		ID: uuid.Generate(), AllocID: uuid.Generate(), Name: "kit", User: os.Getenv("KIT_USER"),
		Resources: &drivers.Resources{
			NomadResources: &structs.AllocatedTaskResources{
				Memory: structs.AllocatedMemoryResources{MemoryMB: 128},
				Cpu:    structs.AllocatedCpuResources{CpuShares: 100},
			},
			LinuxResources: &drivers.LinuxResources{MemoryLimitBytes: 128 * 1024 * 1024, CPUShares: 100},
		},
	}
	defer harness.MkAllocDir(task, false)()
	must.NoError(t, task.EncodeDriverConfig(value(t, spec, os.Getenv("KIT_TASK"))))
	_, _, err = harness.StartTask(task)
	must.NoError(t, err)
	defer func() { _ = harness.DestroyTask(task.ID, true) }()
	must.NoError(t, harness.WaitUntilStarted(task.ID, time.Minute))
	testutils.ExecTaskStreamingConformanceTests(t, harness, task.ID)
}
