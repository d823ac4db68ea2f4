package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
)

// next is in every page.
type next struct {
	Next string `json:"next"`
}

func (n next) cursor() string { return n.Next }

// maxPages bounds a list: a daemon whose cursors never end is not a daemon.
const maxPages = 1000

// errEnough ends a list of which no more is wanted.
var errEnough = errors.New("enough")

// pages reads a list to its end, or until fn returns errEnough.
func pages[Page interface{ cursor() string }](ctx context.Context, c *Client, path string, query url.Values, fn func(Page) error) error {
	for range maxPages {
		var page Page
		if err := c.do(ctx, call{method: http.MethodGet, path: path, query: query}, &page); err != nil {
			return err
		}
		if err := fn(page); err != nil {
			if errors.Is(err, errEnough) {
				return nil
			}
			return err
		}
		if page.cursor() == "" {
			return nil
		}
		query.Set("cursor", page.cursor())
	}
	return wrong("a list has more than %d pages", maxPages)
}
