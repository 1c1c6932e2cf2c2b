package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// A bar is one of a bar chart.
type bar struct {
	name string
	spread
}

// bars draws horizontal bars on a logarithmic scale, with the least and the most of the
// rounds as a line.
func bars(title, unit string, all []bar) string {
	all = slices.DeleteFunc(slices.Clone(all), func(b bar) bool { return b.n == 0 || b.median <= 0 })
	if len(all) == 0 {
		return ""
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, b := range all {
		low, high = min(low, max(b.least, b.median/1000)), max(high, b.most)
	}
	low, high = math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high)))
	if high <= low {
		high = low * 10
	}
	const left, right, height, top = 270.0, 130.0, 26.0, 56.0
	const width = 860.0
	x := func(v float64) float64 {
		return left + (width-left-right)*math.Log10(max(v, low)/low)/math.Log10(high/low)
	}
	var out strings.Builder
	total := top + height*float64(len(all)) + 30
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="system-ui, sans-serif" font-size="13">`+"\n", width, total)
	fmt.Fprintf(&out, `<rect width="100%%" height="100%%" fill="white"/><text x="16" y="26" font-size="16" font-weight="600">%s</text>`+"\n", html.EscapeString(title))
	for v := low; v <= high*1.001; v *= 10 {
		fmt.Fprintf(&out, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%.1f" y="%.1f" text-anchor="middle" fill="#666" font-size="11">%s</text>`+"\n",
			x(v), x(v), top-6, total-26, x(v), total-10, number(v))
	}
	for i, b := range all {
		y := top + height*float64(i)
		colour := "#9aa5b1"
		if strings.HasPrefix(b.name, "leasehold") {
			colour = "#2563eb"
		}
		fmt.Fprintf(&out, `<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, left-8, y+16, html.EscapeString(b.name))
		fmt.Fprintf(&out, `<rect x="%.1f" y="%.1f" width="%.1f" height="16" fill="%s"/>`, left, y+3, max(x(b.median)-left, 1), colour)
		fmt.Fprintf(&out, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#111"/>`, x(b.least), x(b.most), y+11, y+11)
		fmt.Fprintf(&out, `<text x="%.1f" y="%.1f">%s %s</text>`+"\n", x(max(b.median, b.most))+6, y+16, number(b.median), html.EscapeString(unit))
	}
	out.WriteString("</svg>\n")
	return out.String()
}
