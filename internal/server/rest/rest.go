// Package rest serves boxes over HTTP.
package rest

import _ "github.com/danielgtaylor/huma/v2/adapters/humago"
