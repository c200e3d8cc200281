// Configurations by schemas, with the very libraries that Nomad's agent reads and encodes them with: what our encoder is
// compared to.
//
//	go-driver hcl < LINES
//
// A line is {"spec": a schema as protobuf's JSON, "config": …}; answered by its bytes in hex, or by "error: …".
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hcldec"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	hcljson "github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
	"github.com/zclconf/go-cty/cty/msgpack"
)

type named struct {
	Name     string   `json:"name"`
	Type     string   `json:"type"`
	Required bool     `json:"required"`
	MinItems int      `json:"minItems"`
	MaxItems int      `json:"maxItems"`
	Labels   []string `json:"labels"`
	Nested   *spec    `json:"nested"`
}

type spec struct {
	Object *struct {
		Attributes map[string]*spec `json:"attributes"`
	} `json:"object"`
	Array *struct {
		Values []*spec `json:"values"`
	} `json:"array"`
	Attr       *named `json:"Attr"`
	BlockValue *named `json:"blockValue"`
	BlockAttrs *named `json:"blockAttrs"`
	BlockList  *named `json:"blockList"`
	BlockSet   *named `json:"blockSet"`
	BlockMap   *named `json:"blockMap"`
	Default    *struct {
		Primary *spec `json:"primary"`
		Default *spec `json:"default"`
	} `json:"default"`
	Literal *struct {
		Value string `json:"value"`
	} `json:"literal"`
}

var functions = map[string]function.Function{
	"abs": stdlib.AbsoluteFunc, "coalesce": stdlib.CoalesceFunc, "concat": stdlib.ConcatFunc, "hasindex": stdlib.HasIndexFunc,
	"int": stdlib.IntFunc, "jsondecode": stdlib.JSONDecodeFunc, "jsonencode": stdlib.JSONEncodeFunc,
	"length": stdlib.LengthFunc, "lower": stdlib.LowerFunc, "max": stdlib.MaxFunc, "min": stdlib.MinFunc,
	"reverse": stdlib.ReverseFunc, "strlen": stdlib.StrlenFunc, "substr": stdlib.SubstrFunc, "upper": stdlib.UpperFunc,
}

func expression(text string) hcl.Expression {
	parsed, problems := hclsyntax.ParseExpression([]byte(text), "", hcl.InitialPos)
	if problems.HasErrors() {
		panic(problems)
	}
	return parsed
}

func typeOf(text string) cty.Type {
	found, problems := typeexpr.TypeConstraint(expression(text))
	if problems.HasErrors() {
		panic(problems)
	}
	return found
}

func (n *named) or(implied string) string {
	if n.Name != "" {
		return n.Name
	}
	if implied == "" {
		panic("no name")
	}
	return implied
}

func (s *spec) decoder(implied string) hcldec.Spec {
	switch {
	case s.Object != nil:
		fields := hcldec.ObjectSpec{}
		for key, field := range s.Object.Attributes {
			fields[key] = field.decoder(key)
		}
		return fields
	case s.Array != nil:
		items := hcldec.TupleSpec{}
		for _, item := range s.Array.Values {
			items = append(items, item.decoder(""))
		}
		return items
	case s.Attr != nil:
		return &hcldec.AttrSpec{Name: s.Attr.or(implied), Type: typeOf(s.Attr.Type), Required: s.Attr.Required}
	case s.BlockValue != nil:
		b := s.BlockValue
		return &hcldec.BlockSpec{TypeName: b.or(implied), Nested: b.Nested.decoder(""), Required: b.Required}
	case s.BlockAttrs != nil:
		b := s.BlockAttrs
		return &hcldec.BlockAttrsSpec{TypeName: b.or(implied), ElementType: typeOf(b.Type), Required: b.Required}
	case s.BlockList != nil:
		b := s.BlockList
		return &hcldec.BlockListSpec{TypeName: b.or(implied), Nested: b.Nested.decoder(""), MinItems: b.MinItems, MaxItems: b.MaxItems}
	case s.BlockSet != nil:
		b := s.BlockSet
		return &hcldec.BlockSetSpec{TypeName: b.or(implied), Nested: b.Nested.decoder(""), MinItems: b.MinItems, MaxItems: b.MaxItems}
	case s.BlockMap != nil:
		b := s.BlockMap
		return &hcldec.BlockMapSpec{TypeName: b.or(implied), LabelNames: b.Labels, Nested: b.Nested.decoder("")}
	case s.Default != nil:
		return &hcldec.DefaultSpec{Primary: s.Default.Primary.decoder(""), Default: s.Default.Default.decoder("")}
	case s.Literal != nil:
		value, problems := expression(s.Literal.Value).Value(&hcl.EvalContext{Functions: functions})
		if problems.HasErrors() {
			panic(problems)
		}
		return &hcldec.LiteralSpec{Value: value}
	}
	panic("an empty spec")
}

func encoded(line []byte) (answer string) {
	defer func() {
		if problem := recover(); problem != nil {
			answer = fmt.Sprint("error: ", problem)
		}
	}()
	var given struct {
		Spec   *spec           `json:"spec"`
		Config json.RawMessage `json:"config"`
	}
	must(json.Unmarshal(line, &given))
	file, problems := hcljson.Parse(given.Config, "config.json")
	if problems.HasErrors() {
		panic(problems)
	}
	value, problems := hcldec.Decode(file.Body, given.Spec.decoder(""), &hcl.EvalContext{Functions: functions})
	if problems.HasErrors() {
		panic(problems)
	}
	bytes, err := msgpack.Marshal(value, value.Type())
	must(err)
	return hex.EncodeToString(bytes)
}

func hclLines() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16*1024*1024)
	for lines.Scan() {
		fmt.Println(encoded(lines.Bytes()))
	}
	os.Exit(0)
}
