// Package upstream has what client-go's tests need in its go.sum, beside the adapter.
package upstream

import (
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/stretchr/testify/assert"
	_ "k8s.io/client-go/kubernetes/fake"
	_ "k8s.io/client-go/tools/leaderelection"
	_ "k8s.io/klog/v2/ktesting"
	_ "k8s.io/utils/clock/testing"

	_ "github.com/leasehold/leasehold/adapter/kubernetes"
	_ "github.com/leasehold/leasehold/store/memstore"
)
