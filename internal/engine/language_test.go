package engine

import (
	"slices"
	"testing"
)

func TestShebangIsReadAsTheKernelDoes(t *testing.T) {
	for head, want := range map[string][]string{
		"#!/bin/sh\necho":                {"/bin/sh"},
		"#!/bin/sh":                      {"/bin/sh"},
		"#! /bin/sh -e \necho":           {"/bin/sh", "-e"},
		"#!/usr/bin/env python3 -u\n":    {"/usr/bin/env", "python3 -u"},
		"#!/usr/bin/env -S python3 -u\n": {"/usr/bin/env", "-S python3 -u"},
		"#!/bin/bash\r\n":                {"/bin/bash"},
		"#!\t/bin/sh\t-e\n":              {"/bin/sh", "-e"},
		"#!\n":                           nil,
		"#!   \n/bin/sh":                 nil,
		"":                               nil,
		"# !/bin/sh\n":                   nil,
		"\n#!/bin/sh\n":                  nil,
	} {
		if got := Shebang([]byte(head)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", head, got, want)
		}
	}
}
