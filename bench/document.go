package main

// preface is how the document begins.
const preface = `# Side by side: speed, cost and scale

Written by ` + "`go run .`" + ` in [bench](../bench), which runs all of this on one machine in one
run. Nobody writes figures into it by hand. Subjects take turns in each round, in an order that is drawn
anew; a figure is the median of the rounds, and in brackets stand the least and the most of them.
Machines are noisy: compare figures of one table, and ratios.

`
