// The part of Apple's Foundation that Metal host code needs, declared for GNU's Objective-C runtime.
#pragma once

#include <Foundation/NSAutoreleasePool.h>
#include <Foundation/NSCollections.h>
#include <Foundation/NSError.h>
#include <Foundation/NSObject.h>
#include <Foundation/NSProcessInfo.h>
#include <Foundation/NSString.h>
#include <Foundation/page_size.h>
