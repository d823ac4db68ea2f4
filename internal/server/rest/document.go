package rest

import (
	"math"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sunaba-dev/sunaba/internal/server"
)

// document is the OpenAPI document before there are routes in it. Bodies are
// JSON and nothing else; huma's own pages are left out.
func document(version string) huma.Config {
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	registry.Schema(reflect.TypeFor[server.Problem](), true, "Problem")
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:       "Sunaba",
				Version:     version,
				Description: "Boxes for code that nobody has read. Times are in seconds, sizes in bytes. Unknown keys and query parameters are errors.",
				License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
			},
			Servers: []*huma.Server{{URL: "/", Description: "The daemon, on the loopback interface unless it was told otherwise"}},
			Components: &huma.Components{
				Schemas: registry,
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"key":    {Type: "apiKey", In: "header", Name: "X-API-Key"},
					"bearer": {Type: "http", Scheme: "bearer"},
				},
			},
			Tags: []*huma.Tag{
				{Name: "service", Description: "The daemon itself, and runs in one call"},
				{Name: "boxes", Description: "Boxes that last"},
				{Name: "snapshots", Description: "Copies of boxes, from which boxes are made"},
				{Name: "processes", Description: "Programs in a box"},
				{Name: "files", Description: "Files of a box"},
				{Name: "contexts", Description: "Interpreters that keep their variables"},
				{Name: "ports", Description: "TCP ports of a box"},
			},
		},
		Formats:                      map[string]huma.Format{"application/json": strictJSON(), "json": strictJSON()},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{plain},
	}
}

// plain turns huma's own errors into ours.
func plain(ctx huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	ctx.SetHeader("Content-Type", "application/json")
	p := &server.Problem{Code: m.Status, ErrorCode: class(m.Status), Message: "cannot understand the request: " + m.Detail}
	var details []string
	for i, d := range m.Errors {
		if i == 8 {
			details = append(details, "and more")
			break
		}
		place := d.Location
		if place == "" {
			details = append(details, wholeNumbers(d.Message))
			continue
		}
		details = append(details, place+": "+wholeNumbers(d.Message))
	}
	if details != nil {
		p.Message = "cannot understand the request: " + strings.Join(details, "; ")
	}
	p.Hint = "see /openapi.json for what is understood"
	return p, nil
}

// wholeNumbers writes the bounds in huma's messages as people do: it has 1048576
// as 1.048576e+06. What a caller sent is not in them.
func wholeNumbers(message string) string {
	words := strings.Split(message, " ")
	for i, w := range words {
		if n, err := strconv.ParseFloat(w, 64); err == nil && strings.Contains(w, "e+") && n == math.Trunc(n) {
			words[i] = strconv.FormatFloat(n, 'f', -1, 64)
		}
	}
	return strings.Join(words, " ")
}

// class names an error that huma found.
func class(status int) string {
	switch status {
	case http.StatusBadRequest:
		return server.Malformed
	case http.StatusRequestEntityTooLarge:
		return server.TooLarge
	case http.StatusUnsupportedMediaType:
		return server.MediaType
	case http.StatusUnprocessableEntity:
		return "invalid"
	case http.StatusRequestTimeout:
		return server.Timeout
	}
	return "fault"
}

// finish puts right what huma assumes and we do not do: no list is ever null,
// and its own form of errors is not used.
func finish(doc *huma.OpenAPI) {
	schemas := doc.Components.Schemas.Map()
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
	for _, s := range schemas {
		noNullLists(s)
	}
}

func noNullLists(s *huma.Schema) {
	if s == nil {
		return
	}
	if s.Type == huma.TypeArray {
		s.Nullable = false
	}
	noNullLists(s.Items)
	for _, p := range s.Properties {
		noNullLists(p)
	}
	if extra, ok := s.AdditionalProperties.(*huma.Schema); ok {
		noNullLists(extra)
	}
}
