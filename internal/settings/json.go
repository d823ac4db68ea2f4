package settings

import (
	"encoding/json"

	"go.yaml.in/yaml/v3"
)

// JSON writes a plain tree as JSON, with every scalar as a string: what reads
// it knows what each shall be. Places are lost. The node was found to be plain
// by a [Reader].
func JSON(n *yaml.Node) (json.RawMessage, error) {
	v, err := plainValue(n)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

func plainValue(n *yaml.Node) (any, error) {
	switch {
	case n.Kind == yaml.MappingNode:
		out := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			v, err := plainValue(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			out[n.Content[i].Value] = v
		}
		return out, nil
	case n.Kind == yaml.SequenceNode:
		out := []any{}
		for _, e := range n.Content {
			v, err := plainValue(e)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case n.Kind == yaml.ScalarNode:
		return n.Value, nil
	}
	return nil, errNotPlain
}
