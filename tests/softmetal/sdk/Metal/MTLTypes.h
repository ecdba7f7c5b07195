#pragma once

#include <Foundation/Foundation.h>

typedef struct {
  NSUInteger width;
  NSUInteger height;
  NSUInteger depth;
} MTLSize;

static inline MTLSize MTLSizeMake(NSUInteger width, NSUInteger height, NSUInteger depth) {
  return MTLSize{width, height, depth};
}

typedef uint64_t MTLGPUAddress;

@protocol MTLDevice;
@protocol MTLBuffer;
@protocol MTLAllocation;
@protocol MTLCommandQueue;
@protocol MTLCommandBuffer;
@protocol MTLComputeCommandEncoder;
@protocol MTLComputePipelineState;
@protocol MTLSharedEvent;
@protocol MTLResidencySet;
