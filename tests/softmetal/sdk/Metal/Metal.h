// The part of Apple's Metal API that compute host code needs. tests/softmetal/api checks every
// selector, type and value against Apple's own headers.
#pragma once

#include <Metal/MTLBuffer.h>
#include <Metal/MTLCommandBuffer.h>
#include <Metal/MTLCommandQueue.h>
#include <Metal/MTLComputeCommandEncoder.h>
#include <Metal/MTLComputePipeline.h>
#include <Metal/MTLDevice.h>
#include <Metal/MTLEvent.h>
#include <Metal/MTLFunctionConstantValues.h>
#include <Metal/MTLLibrary.h>
#include <Metal/MTLResidencySet.h>
#include <Metal/MTLResource.h>
#include <Metal/MTLTypes.h>
