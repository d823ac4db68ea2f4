// Package examples holds what the README runs. Its tests hold the examples to
// their word outside a box, so that a wrong number in one is not blamed on the
// walls.
package examples

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// python is the interpreter that a box would see, below the host's /usr.
const python = "/usr/bin/python3"

type summary struct {
	Orders      int              `json:"orders"`
	Skipped     map[string]int   `json:"skipped"`
	Revenue     int64            `json:"revenue_cents"`
	Median      float64          `json:"median_order_cents"`
	ByMonth     map[string]int64 `json:"by_month"`
	ByProduct   map[string]int64 `json:"by_product"`
	ByRegion    map[string]int64 `json:"by_region"`
	Trend       float64          `json:"trend_cents_per_month"`
	UnusualDays []string         `json:"unusual_days"`
}

func TestSalesAnalysisAgreesWithAnIndependentCount(t *testing.T) {
	needPython(t)
	data, err := os.ReadFile("sales/data.json")
	if err != nil {
		t.Fatal(err)
	}
	dir, stdout := analyse(t, data)
	var got summary
	raw, err := os.ReadFile(filepath.Join(dir, "output.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	want := count(t, data)
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if !bytes.Equal(a, b) {
		t.Errorf("analysis.py says\n%s\nwe count\n%s", a, b)
	}
	if !strings.Contains(stdout, "2025-09-17") {
		t.Errorf("the report does not name the unusual day:\n%s", stdout)
	}
	checkChart(t, filepath.Join(dir, "chart.svg"), len(want.ByMonth))
}

func TestSalesDataIsWhatItsGeneratorWrites(t *testing.T) {
	needPython(t)
	want, err := os.ReadFile("sales/data.json")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "sales/generate.py")
	cmd.Env = []string{"LC_ALL=C.UTF-8"}
	got, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("generate.py does not give data.json; write it again with: python3 generate.py > data.json")
	}
}

// analyse runs the script on data in a fresh folder.
func analyse(t *testing.T, data []byte) (dir, stdout string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "input.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	cmd := exec.Command(python, "sales/analysis.py")
	cmd.Env = []string{"SUNABA_WORKSPACE=" + dir, "LC_ALL=C.UTF-8"}
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errOut.String())
	}
	return dir, out.String()
}

// count computes the summary again, by other means: one pass over the rows with
// exact sums, and the textbook formula for the slope.
func count(t *testing.T, data []byte) summary {
	t.Helper()
	var rows []struct {
		Date, Region, Product string
		Units                 *int64
		Price                 *float64 `json:"unit_price"`
	}
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatal(err)
	}
	s := summary{Skipped: map[string]int{}, ByMonth: map[string]int64{}, ByProduct: map[string]int64{}, ByRegion: map[string]int64{}}
	days := map[string]int64{}
	var orders []int64
	for _, r := range rows {
		switch _, err := time.Parse(time.DateOnly, r.Date); {
		case err != nil:
			s.Skipped["no valid date"]++
			continue
		case r.Units == nil || *r.Units <= 0:
			s.Skipped["no valid units"]++
			continue
		case r.Price == nil:
			s.Skipped["no valid unit_price"]++
			continue
		}
		cents := *r.Units * int64(math.Round(*r.Price*100))
		orders = append(orders, cents)
		s.Revenue += cents
		s.ByMonth[r.Date[:7]] += cents
		s.ByProduct[r.Product] += cents
		s.ByRegion[r.Region] += cents
		days[r.Date] += cents
	}
	s.Orders = len(orders)
	slices.Sort(orders)
	s.Median = float64(orders[(len(orders)-1)/2]+orders[len(orders)/2]) / 2
	var n, sx, sy, sxx, sxy float64
	for i, m := range slices.Sorted(maps.Keys(s.ByMonth)) {
		x, y := float64(i), float64(s.ByMonth[m])
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	s.Trend = math.Round(100*(n*sxy-sx*sy)/(n*sxx-sx*sx)) / 100
	var mean, square float64
	for _, v := range days {
		mean += float64(v) / float64(len(days))
		square += float64(v) * float64(v) / float64(len(days))
	}
	for d, v := range days {
		if float64(v) > mean+6*math.Sqrt(square-mean*mean) {
			s.UnusualDays = append(s.UnusualDays, d)
		}
	}
	slices.Sort(s.UnusualDays)
	return s
}

// checkChart reads the picture as XML and counts its bars, each inside it.
func checkChart(t *testing.T, path string, bars int) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var svg struct {
		XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
		Height  float64  `xml:"height,attr"`
		Rects   []struct {
			Class  string  `xml:"class,attr"`
			Y      float64 `xml:"y,attr"`
			Height float64 `xml:"height,attr"`
		} `xml:"rect"`
	}
	dec := xml.NewDecoder(bytes.NewReader(raw))
	if err := dec.Decode(&svg); err != nil {
		t.Fatalf("chart.svg: %v", err)
	}
	if _, err := dec.Token(); err != io.EOF && !isSpace(raw[dec.InputOffset():]) {
		t.Error("chart.svg: something follows the svg element")
	}
	seen := 0
	for _, r := range svg.Rects {
		if r.Class != "bar" {
			continue
		}
		seen++
		if r.Height <= 0 || r.Y < 0 || r.Y+r.Height > svg.Height {
			t.Errorf("chart.svg: bar at y %v, height %v is outside the picture", r.Y, r.Height)
		}
	}
	if seen != bars {
		t.Errorf("chart.svg has %d bars, want %d", seen, bars)
	}
}

func isSpace(b []byte) bool { return len(bytes.TrimSpace(b)) == 0 }

func needPython(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(python); err != nil {
		t.Skipf("no %s on this machine; .ci/setup installs it", python)
	}
}
