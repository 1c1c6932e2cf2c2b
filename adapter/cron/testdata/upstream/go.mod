module github.com/leasehold/leasehold/adapter/cron/testdata/upstream

go 1.26.0

require (
	github.com/leasehold/leasehold v0.1.0
	github.com/leasehold/leasehold/adapter/cron v0.1.0
	github.com/robfig/cron/v3 v3.0.1
)

require golang.org/x/sys v0.49.0 // indirect

replace (
	github.com/leasehold/leasehold => ../../../..
	github.com/leasehold/leasehold/adapter/cron => ../..
)
