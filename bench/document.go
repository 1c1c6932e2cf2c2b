package main

// preface is how the document begins.
const preface = `# Side by side: speed, cost and scale

Written by ` + "`go run .`" + ` in [bench](../bench), which runs all of this on one machine in one
run. Nobody writes figures into it by hand. Subjects take turns in each round, in an order that is drawn
anew; a figure is the median of the rounds, and in brackets stand the least and the most of them.
Machines are noisy: compare figures of one table, and ratios.

Protocols renew and look at equal intervals. An experiment that waited for equal times itself would
show one moment alone: a crash just before a renewal is noticed a third of a TTL sooner than one just
after it. So such moments are drawn evenly over the interval concerned; of several, there is one in each
of as many equal parts of it. Each section names the times that it draws.

Each S3 server is measured as it is, and the last also behind a proxy that adds 100 to 200 ms to each
request, evenly spread: S3's guide to performance names [roughly 100–200 ms](https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html)
for small objects and the first byte of larger ones. There round trips decide, and not the
processor that all share here. The other servers run on this machine too, each alone and with
nothing between: with one in another zone, add its round trip.

An expression like "lock by If-Match, published 2025" stands for a protocol that somebody has
described, built here as plainly as it is described.

`
