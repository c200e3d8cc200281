// Decodes and encodes configurations by their schemas like Nomad's agent. Tests compare our encoder with it.
//
//	nomad-hcl < LINES
//
// Each line is {"spec": a schema in protobuf's JSON, "config": …}; the answer is the encoded bytes in hex, or "error: …".
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	"github.com/golang/protobuf/jsonpb"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hcldec"
	hcljson "github.com/hashicorp/hcl/v2/json"
	"github.com/hashicorp/nomad/helper/pluginutils/hclspecutils"
	"github.com/hashicorp/nomad/helper/pluginutils/hclutils"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"
	"github.com/zclconf/go-cty/cty/msgpack"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func clean(problems hcl.Diagnostics) {
	if problems.HasErrors() {
		panic(problems)
	}
}

func encoded(line []byte) (answer string) {
	defer func() {
		if problem := recover(); problem != nil {
			answer = fmt.Sprint("error: ", problem)
		}
	}()
	var given struct {
		Spec   json.RawMessage `json:"spec"`
		Config json.RawMessage `json:"config"`
	}
	must(json.Unmarshal(line, &given))
	var spec hclspec.Spec
	must(jsonpb.UnmarshalString(string(given.Spec), &spec))
	decoder, problems := hclspecutils.Convert(&spec)
	clean(problems)
	file, problems := hcljson.Parse(given.Config, "config.json")
	clean(problems)
	value, problems := hcldec.Decode(file.Body, decoder, &hcl.EvalContext{Functions: hclutils.GetStdlibFuncs()})
	clean(problems)
	bytes, err := msgpack.Marshal(value, value.Type())
	must(err)
	return hex.EncodeToString(bytes)
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16*1024*1024)
	for lines.Scan() {
		fmt.Println(encoded(lines.Bytes()))
	}
}
