// Package upstream has what tests of controller-runtime need when package leasemanager has their managers elected.
package upstream

import (
	_ "github.com/onsi/ginkgo/v2"
	_ "github.com/onsi/gomega"
	_ "go.uber.org/goleak"
	_ "sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	_ "sigs.k8s.io/controller-runtime/pkg/leaderelection/fake"
	_ "sigs.k8s.io/controller-runtime/pkg/log/zap"
	_ "sigs.k8s.io/controller-runtime/pkg/manager"

	_ "github.com/leasehold/leasehold/adapter/kubernetes/controllerruntime"
	_ "github.com/leasehold/leasehold/store/memstore"
)
